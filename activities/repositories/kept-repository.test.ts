import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { chmod, mkdir, readFile, readlink, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { commitFiles, gitIn, newRepository } from '../../tests/support/harness/git-repository.ts';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { SmallDisk } from '../../tests/support/harness/small-disk.ts';
import { until } from '../../tests/support/harness/until.ts';
import { hostWork } from '../sandbox/errors.ts';
import { keptRepository } from './kept-repository.ts';

const MODULE = new URL('./kept-repository.ts', import.meta.url).href;
const noCommit = '0123456789'.repeat(4);

async function repositoryWith(home: string, files: Record<string, string> = { 'a.txt': 'a' }) {
  const url = join(home, 'origin');
  await newRepository(url);
  return { url, commit: await commitFiles(url, 'first', files), path: '.', history: false };
}

const keeping = (home: string, lines: string[] = []) => ({
  home,
  signal: AbortSignal.timeout(60_000),
  report: (line: string) => void lines.push(line),
});

/** Starts a process that keeps a repository, as a worker does, and prints `kept` or its error. */
function startKeeper(home: string, repository: object, env: Record<string, string> = {}) {
  const script = `const { keptRepository } = await import(${JSON.stringify(MODULE)});
    await keptRepository(${JSON.stringify(repository)}, { home: ${JSON.stringify(home)}, signal: new AbortController().signal }).then(() => console.log('kept'), (error) => console.log(String(error)));`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    env: { PATH: process.env.PATH, HOME: home, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const printed = { out: '', err: '' };
  child.stdout.on('data', (data) => (printed.out += String(data)));
  child.stderr.on('data', (data) => (printed.err += String(data)));
  return { child, printed };
}

test('a commit that is kept needs its repository no more', async () => {
  await using folder = await temporaryHome();
  const repository = await repositoryWith(folder.home);
  const lines: string[] = [];
  const first = await keptRepository(repository, keeping(folder.home, lines));
  await rm(repository.url, { recursive: true });
  expect(await keptRepository(repository, keeping(folder.home, lines))).toEqual(first);
  expect(lines).toHaveLength(2);
  expect(await readFile(join(first.files, 'a.txt'), 'utf8')).toBe('a');
});

test('two workers that need a commit at once fetch it once', async () => {
  await using folder = await temporaryHome();
  const repository = await repositoryWith(folder.home);
  const keepers = [startKeeper(folder.home, repository), startKeeper(folder.home, repository)];
  await Promise.all(keepers.map(({ child }) => once(child, 'close')));
  expect(keepers.map(({ printed }) => printed.out)).toEqual(['kept\n', 'kept\n']);
  expect(keepers.flatMap(({ printed }) => printed.err.match(/^fetching /gm) ?? [])).toHaveLength(1);
});

test('a worker that is killed while it fetches leaves nothing that the next one uses or waits for', async () => {
  await using folder = await temporaryHome();
  const { home } = folder;
  const repository = await repositoryWith(home);
  // The first git that fetches never ends.
  const slow = join(home, 'bin/git');
  await mkdir(join(home, 'bin'));
  await writeFile(
    slow,
    `#!/bin/sh\ncase "$*" in *fetch*) echo $$ > ${home}/pid; exec sleep 600;; esac\nexec /usr/bin/env PATH="$REST" git "$@"\n`,
  );
  await chmod(slow, 0o755);
  const { child } = startKeeper(home, repository, {
    PATH: `${join(home, 'bin')}:${process.env.PATH}`,
    REST: process.env.PATH ?? '',
  });
  await until(async () => existsSync(join(home, 'pid')) && (await readFile(join(home, 'pid'), 'utf8')) !== '');
  child.kill('SIGKILL');
  await once(child, 'close');
  const left = readdirSync(join(home, 'repositories'));
  expect(left).toEqual([expect.stringMatching(/\.partial$/)]);
  await keptRepository(repository, keeping(home));
  process.kill(Number(await readFile(join(home, 'pid'), 'utf8')), 'SIGKILL');
  expect(readdirSync(join(home, 'repositories'))).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/)]);
});

test('a fetch goes on while one of those that wait for it is cancelled', async () => {
  await using folder = await temporaryHome();
  const repository = await repositoryWith(folder.home);
  const stop = new AbortController();
  const cancelled = keptRepository(repository, { ...keeping(folder.home), signal: stop.signal });
  const other = keptRepository(repository, keeping(folder.home));
  stop.abort(new Error('the trial was cancelled'));
  await expect(cancelled).rejects.toThrow('the trial was cancelled');
  expect(existsSync((await other).objects)).toBe(true);
});

test('a commit that the repository does not have is refused with its URL and what to do', async () => {
  await using folder = await temporaryHome();
  const repository = { ...(await repositoryWith(folder.home)), commit: noCommit };
  await expect(keptRepository(repository, keeping(folder.home))).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(/origin at 012345678901: the repository does not give this commit: check it/),
  });
  expect(readdirSync(join(folder.home, 'repositories'))).toEqual([]);
});

test('an id that names a tag or a tree is refused with what it is', async () => {
  await using folder = await temporaryHome();
  const repository = await repositoryWith(folder.home);
  await gitIn(repository.url, 'tag', '--annotate', '--message=x', 'v1');
  const commit = await gitIn(repository.url, 'rev-parse', 'v1');
  await expect(keptRepository({ ...repository, commit }, keeping(folder.home))).rejects.toThrow(
    /this names a tag, not a commit/,
  );
});

test('a repository that does not exist is refused', async () => {
  await using folder = await temporaryHome();
  const repository = { url: join(folder.home, 'nowhere'), commit: noCommit, path: '.', history: false };
  await expect(keptRepository(repository, keeping(folder.home))).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(/nowhere at 012345678901: there is no such repository: check `url`/),
  });
});

test('a server that cannot be reached is the host’s failure, and neither the message nor what is printed has the password in the URL', async () => {
  await using folder = await temporaryHome();
  const repository = {
    url: 'http://me:s3cret@127.0.0.1:9/x.git?token=t0ken',
    commit: noCommit,
    path: '.',
    history: false,
  };
  const lines: string[] = [];
  const failure: Error = await hostWork('sandbox t.1', () =>
    keptRepository(repository, keeping(folder.home, lines)),
  ).then(
    () => new Error('no failure'),
    (error: Error) => error,
  );
  expect(failure).toMatchObject({ name: 'SandboxError', message: expect.stringContaining('cannot be fetched') });
  expect(`${failure.message} ${lines.join(' ')}`).toContain('http://127.0.0.1:9/x.git');
  expect(`${failure.message} ${lines.join(' ')}`).not.toMatch(/s3cret|t0ken/);
});

test('without git the error says how to install it', async () => {
  await using folder = await temporaryHome();
  const repository = await repositoryWith(folder.home);
  const { child, printed } = startKeeper(folder.home, repository, { PATH: join(folder.home, 'empty') });
  await once(child, 'close');
  expect(printed.out).toMatch(/git is not installed.*apt-get install git/);
});

const noDisk = await SmallDisk.refusal();

test.skipIf(noDisk)('a full disk is the host’s failure and leaves nothing half made', async () => {
  await using folder = await temporaryHome();
  const repository = await repositoryWith(folder.home, { 'big.bin': String(Math.random()).repeat(300_000) });
  const disk = await SmallDisk.mount(join(folder.home, 'small'), 4);
  try {
    await expect(hostWork('sandbox t.1', () => keptRepository(repository, keeping(disk.folder)))).rejects.toMatchObject(
      { name: 'SandboxError', message: expect.stringContaining('the disk is full') },
    );
    expect(readdirSync(join(disk.folder, 'repositories'))).toEqual([]);
  } finally {
    await disk.unmount();
  }
});

test('submodules and files of Git LFS are said to be left out', async () => {
  await using folder = await temporaryHome();
  const repository = await repositoryWith(folder.home);
  const { url } = repository;
  await gitIn(url, 'update-index', '--add', '--cacheinfo', `160000,${noCommit},deps/lib`);
  const commit = await commitFiles(url, 'more', {
    '.gitattributes': '*.bin filter=lfs diff=lfs\n',
    'x.bin': 'version https://git-lfs',
  });
  await gitIn(url, 'update-index', '--add', '--cacheinfo', `160000,${noCommit},deps/lib`);
  await gitIn(url, 'commit', '--quiet', '--message=submodule');
  const lines: string[] = [];
  const newest = await gitIn(url, 'rev-parse', 'HEAD');
  expect(newest).not.toBe(commit);
  await keptRepository({ ...repository, commit: newest }, keeping(folder.home, lines));
  expect(lines.join('\n')).toMatch(/submodules are not fetched, so these folders are empty: deps\/lib/);
  expect(lines.join('\n')).toMatch(/files of Git LFS are not fetched/);
});

test('hooks and settings of the worker’s user and of the repository are not carried out', async () => {
  await using folder = await temporaryHome();
  const { home } = folder;
  const repository = await repositoryWith(home, { 'a.txt': 'a', '.gitattributes': '* filter=evil\n' });
  const evil = join(home, 'evil.sh');
  await writeFile(evil, `#!/bin/sh\ntouch ${join(home, 'ran')}\n`, { mode: 0o755 });
  const hooks = join(home, 'hooks');
  await mkdir(hooks);
  for (const name of ['post-checkout', 'reference-transaction', 'post-index-change'])
    await symlink(evil, join(hooks, name));
  await writeFile(
    join(home, '.gitconfig'),
    `[core]\nhooksPath = ${hooks}\nfsmonitor = ${evil}\n[filter "evil"]\nsmudge = ${evil}\n`,
  );
  await rename(join(repository.url, '.git/hooks'), join(home, 'unused')).catch(() => {});
  await symlink(hooks, join(repository.url, '.git/hooks'));
  const { child, printed } = startKeeper(home, repository);
  await once(child, 'close');
  expect(printed.out).toBe('kept\n');
  expect(existsSync(join(home, 'ran'))).toBe(false);
});

test('a link that is called as a file of attributes is not followed', async () => {
  await using folder = await temporaryHome();
  const repository = await repositoryWith(folder.home);
  await mkdir(join(repository.url, 'lib'));
  await symlink('/dev/zero', join(repository.url, 'lib/.gitattributes'));
  const commit = await commitFiles(repository.url, 'a link', {});
  const kept = await keptRepository({ ...repository, commit }, keeping(folder.home));
  expect(await readlink(join(kept.files, 'lib/.gitattributes'))).toBe('/dev/zero');
});

test('a repository with more than a task may have is refused before its files are written, and a task that may have more gets it', async () => {
  await using folder = await temporaryHome();
  const repository = await repositoryWith(folder.home, { big: 'x'.repeat(100_000), small: '' });
  const keep = (bytes: number, entries: number) =>
    keptRepository(repository, { ...keeping(folder.home), most: { bytes, entries } });
  // These wait for the same fetch.
  const both = await Promise.allSettled([keep(99_999, 2), keep(100_000, 2)]);
  expect(both.map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
  await rm(join(folder.home, 'repositories'), { recursive: true });
  for (const [bytes, entries] of [
    [99_999, 2],
    [100_000, 1],
  ] as const)
    await expect(keep(bytes, entries)).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringContaining('the repository has 2 files of 100000 bytes'),
    });
  expect(readdirSync(join(folder.home, 'repositories'))).toEqual([]);
});

test('a server that sends more than a task may have is cut off, nothing of it is left, and a task that may have more gets it', async () => {
  await using folder = await temporaryHome();
  const repository = await repositoryWith(folder.home, { big: randomBytes(2 ** 21).toString('base64') });
  const keep = (bytes: number, report = () => {}) =>
    keptRepository(repository, { ...keeping(folder.home), report, most: { bytes, entries: 10 } });
  const fetching = Promise.withResolvers<void>();
  // Were the one that may have more the first to fetch, the other would be refused with the size of the files.
  const both = await Promise.allSettled([
    keep(2 ** 20, () => fetching.resolve()),
    fetching.promise.then(() => keep(2 ** 22)),
  ]);
  expect(both).toMatchObject([
    {
      status: 'rejected',
      reason: {
        code: 'bad_input',
        message: expect.stringContaining('its server sends more than 1048576 bytes: raise `storage_mb` of the task'),
      },
    },
    { status: 'fulfilled' },
  ]);
  await rm(join(folder.home, 'repositories'), { recursive: true });
  await expect(keep(2 ** 20)).rejects.toThrow('its server sends more than');
  expect(readdirSync(join(folder.home, 'repositories'))).toEqual([]);
});
