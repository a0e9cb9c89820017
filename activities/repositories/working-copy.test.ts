import { bubblewrapBackend } from '../sandbox/bubblewrap-backend.ts';
import { existsSync, lstatSync, readdirSync, readlinkSync } from 'node:fs';
import { chmod, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { commitFiles, gitIn, newRepository } from '../../tests/support/harness/git-repository.ts';
import {
  testedIsolations,
  sandboxWith,
  shell,
  taskWith,
  temporaryHome,
  writeFiles,
} from '../../tests/support/harness/sandbox-fixtures.ts';
import type { FolderTask } from '../../core/task.ts';
import { openBackend } from '../sandbox/backends.ts';
import { createSandbox } from '../sandbox/create-sandbox.ts';
import type { Sandbox } from '../sandbox/empty-sandbox.ts';
import { verify } from '../sandbox/verify.ts';

/** Root's sandboxes always have a user of their own. */
const all = (await testedIsolations()).filter(({ kind }) => kind !== 'none' || process.getuid?.() !== 0);
const FUTURE = 'the answer of the future';

/** A repository whose wanted commit is in the middle: commits before and after it, another branch, tags, a note and a stash. */
async function makeOrigin(url: string): Promise<{ before: string; commit: string; after: string[] }> {
  await newRepository(url);
  const before = await commitFiles(url, 'before', { 'src/code.py': 'x = 0\n', 'old.txt': 'old' });
  await symlink('src/code.py', join(url, 'link.py'));
  await writeFiles(url, {
    'run.sh': '#!/bin/sh\n',
    'ümlaut and space.txt': 'u',
    'tests/test_code.py': 'assert True\n',
  });
  await chmod(join(url, 'run.sh'), 0o755);
  const commit = await commitFiles(url, 'base', { 'src/code.py': 'x = 1\n' });
  const fixed = await commitFiles(url, 'the fix', { 'src/code.py': `x = 2  # ${FUTURE}\n` });
  await gitIn(url, 'tag', '--annotate', '--message=release', 'v2');
  await gitIn(url, 'notes', 'add', '--message=note', commit);
  await gitIn(url, 'checkout', '--quiet', '-b', 'other', commit);
  const other = await commitFiles(url, 'on a branch', { 'branch.txt': FUTURE });
  await writeFile(join(url, 'old.txt'), FUTURE);
  await gitIn(url, 'stash');
  await gitIn(url, 'checkout', '--quiet', 'trunk');
  return {
    before,
    commit,
    after: [fixed, other, await gitIn(url, 'rev-parse', 'v2'), await gitIn(url, 'rev-parse', 'stash')],
  };
}

const tableOf = (url: string, commit: string, more = '') =>
  `[verifier]\ntimeout_sec = 20\n[trialgate.repository]\nurl = ${JSON.stringify(url)}\ncommit = "${commit}"\n${more}`;

const taskOf = (home: string, url: string, commit: string, more = '', script = 'true'): Promise<FolderTask> =>
  taskWith(home, script, { 'task.toml': tableOf(url, commit, more) });

const LISTED = 'git cat-file --batch-all-objects --batch-check="%(objectname)" | sort';

describe.each(all)('$kind', (isolation) => {
  const backend = bubblewrapBackend(isolation);
  let place: Awaited<ReturnType<typeof temporaryHome>>;
  let origin: Awaited<ReturnType<typeof makeOrigin>>;
  let url = '';
  beforeAll(async () => {
    place = await temporaryHome();
    url = join(place.home, 'origin');
    origin = await makeOrigin(url);
    return () => place[Symbol.asyncDispose]();
  });

  const copy = async (trialId: string, more = ''): Promise<Sandbox> =>
    createSandbox({
      home: place.home,
      trialId,
      attempt: 1,
      task: await taskOf(place.home, url, origin.commit, more),
      backend,
    });
  const inside = (sandbox: Sandbox, script: string) =>
    shell(isolation, sandbox, script, { processes: 128, storageMb: 100, seconds: 60 });

  test('a copy has the commit’s files with their modes and links, and git finds nothing changed', async () => {
    const sandbox = await copy('files');
    expect(await readFile(join(sandbox.work, 'src/code.py'), 'utf8')).toBe('x = 1\n');
    expect(readlinkSync(join(sandbox.work, 'link.py'))).toBe('src/code.py');
    expect(lstatSync(join(sandbox.work, 'run.sh')).mode & 0o100).toBe(0o100);
    const { stdout, stderr } = await inside(
      sandbox,
      'git status --porcelain; git branch -a; git log --format=%s; git fsck --full',
    );
    expect({ stdout, stderr }).toEqual({ stdout: '* main\nbase\n', stderr: '' });
  });

  test('no object of a copy is of a later commit, another branch, a tag, a note, a stash or, without `history`, of an earlier commit', async () => {
    const sandbox = await copy('objects');
    const { stdout } = await inside(
      sandbox,
      `test "$(${LISTED})" = "$(git rev-list --objects --all | cut -c1-40 | sort)" && ${LISTED}`,
    );
    expect(stdout).toContain(origin.commit);
    for (const id of [origin.before, ...origin.after]) {
      expect(stdout).not.toContain(id);
      expect((await inside(sandbox, `git cat-file -e ${id} && echo there`)).stdout).toBe('');
    }
  });

  test('a copy names no remote, no other ref, no earlier position and not where it is from', async () => {
    const sandbox = await copy('names');
    const own = join(sandbox.work, '.git');
    const shared = isolation.kind === 'bubblewrap' ? ['info/alternates'] : [];
    expect(filesIn(own).filter((file) => !/^objects\/pack\//.test(file))).toEqual(
      [
        'HEAD',
        'config',
        'index',
        'info/exclude',
        ...shared.map((file) => `objects/${file}`),
        'refs/heads/main',
        'shallow',
      ].toSorted(),
    );
    const text = (await Promise.all(filesIn(own).map((file) => readFile(join(own, file), 'latin1')))).join('\n');
    expect(text).not.toContain(url);
    expect((await inside(sandbox, 'git remote; git tag; git stash list; git reflog')).stdout).toBe('');
  });

  test('with `history` a copy has the commits before its own and none after it', async () => {
    const sandbox = await copy('history', 'history = true\n');
    const { stdout } = await inside(
      sandbox,
      `git log --format=%s; git fsck --full; git blame -s src/code.py; ${LISTED}`,
    );
    expect(stdout).toMatch(/^base\nbefore\n/);
    for (const id of origin.after) expect(stdout).not.toContain(id);
  });

  test('an agent can change, commit, stash and collect garbage in its copy', async () => {
    const sandbox = await copy('work');
    const { stdout, stderr, exitCode } = await inside(
      sandbox,
      `set -e; echo 'x = 3' > src/code.py; git diff --stat | tail -1; git commit -qam mine; echo 'x = 4' > src/code.py; git stash -q; git stash pop -q
       git checkout -qb try; git gc -q --prune=now; git fsck; git log --format='%s by %an'; git status --porcelain`,
    );
    expect(stderr).toBe('');
    expect({
      exitCode,
      lines: stdout
        .trim()
        .split('\n')
        .map((line) => line.trim()),
    }).toEqual({
      exitCode: 0,
      lines: ['1 file changed, 1 insertion(+), 1 deletion(-)', 'mine by agent', 'base by a', 'M src/code.py'],
    });
  });

  test('an agent that removes or overwrites its `.git` and what it shares changes no other copy and no later one', async () => {
    const [attacker, other] = [await copy('attacker'), await copy('other')];
    const shared = isolation.kind === 'bubblewrap' ? '/repository/objects' : '.git/objects';
    await inside(
      attacker,
      `find ${shared} -type f -exec sh -c 'chmod u+w "$0"; echo broken > "$0"; rm -f "$0"' {} \\;; rm -rf ${shared} .git; find . -type f -exec sh -c 'echo broken > "$0"' {} \\;`,
    );
    for (const sandbox of [other, await copy('later')]) {
      const { stdout, stderr } = await inside(
        sandbox,
        'git fsck --full; git status --porcelain; git show HEAD:src/code.py',
      );
      expect({ stdout, stderr }).toEqual({ stdout: 'x = 1\n', stderr: '' });
      expect(await readFile(join(sandbox.work, 'src/code.py'), 'utf8')).toBe('x = 1\n');
    }
  });

  test('a copy in a folder of its own lies beside the task’s files', async () => {
    await using folder = await temporaryHome();
    const { home } = folder;
    const task = await taskWith(home, 'true', {
      'task.toml': tableOf(url, origin.commit, 'path = "deep/repo/"\n'),
      'environment/notes.txt': 'n',
    });
    const { work } = await createSandbox({ home, trialId: 'beside', attempt: 1, task, backend });
    expect(readdirSync(work).toSorted()).toEqual(['deep', 'instruction.md', 'notes.txt']);
    expect(existsSync(join(work, 'deep/repo/.git/HEAD'))).toBe(true);
    const mixed = { ...task, repository: task.repository && { ...task.repository, path: '.' } };
    await expect(createSandbox({ home, trialId: 'mixed', attempt: 1, task: mixed, backend })).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringMatching(
        /task\.toml: trialgate\.repository: environment\/ has files where the repository goes/,
      ),
    });
  });

  test('tests get a fresh copy with the agent’s changes: new, changed and removed files, its commits’ files, the repository’s links, and nothing of its `.git`', async () => {
    const script = `cd "$WORK_DIR"; git status --porcelain > "$LOGS_DIR/verifier/status"; git log --format=%s; git show HEAD:src/code.py; cat src/code.py src/new.py; ls -A; readlink link.py
      test -e src/__pycache__/evil && echo kept; echo 1 > "$LOGS_DIR/verifier/reward.txt"; cat "$LOGS_DIR/verifier/status"`;
    const task = await taskOf(place.home, url, origin.commit, '', script);
    const sandbox = await createSandbox({ home: place.home, trialId: 'judged', attempt: 1, task, backend });
    await inside(
      sandbox,
      `echo 'x = 9' > src/code.py; git commit -qam mine; echo new > src/new.py; rm old.txt; mkdir -p sub/.git src/__pycache__; echo evil > src/__pycache__/evil; echo '[core]' > sub/.git/config
       ln -s /etc/passwd stolen; git config core.fsmonitor 'touch /tmp/ran'; rm run.sh; mkdir run.sh; echo in > run.sh/in`,
    );
    let stdout = '';
    const { rewards, skipped } = await verify({
      task,
      sandbox,
      backend,
      signal: AbortSignal.timeout(60_000),
      onOutput: (output) => (stdout = output.stdout),
    });
    expect(rewards).toEqual({ reward: 1 });
    expect(skipped).toEqual(['stolen']);
    expect(stdout.split('\n')).toEqual([
      'base',
      'x = 1',
      'x = 9',
      'new',
      '.git',
      'instruction.md',
      'link.py',
      'run.sh',
      'src',
      'sub',
      'tests',
      'ümlaut and space.txt',
      'src/code.py',
      'kept',
      ' D old.txt',
      ' D run.sh',
      ' M src/code.py',
      '?? src/__pycache__/',
      '?? src/new.py',
      '',
    ]);
  });

  test.runIf(isolation === all[0])('64 copies that are made at once are whole', async () => {
    const copies = await Promise.all(Array.from({ length: 64 }, (_, index) => copy(`many-${index}`)));
    for (const { work } of copies) expect(await readFile(join(work, 'src/code.py'), 'utf8')).toBe('x = 1\n');
    const last = copies.at(-1);
    if (last) expect((await inside(last, 'git fsck --full; git status --porcelain')).stdout).toBe('');
    expect(new Set(copies.flatMap(({ mounts }) => mounts.map(({ host }) => host))).size).toBe(
      isolation.kind === 'bubblewrap' ? 1 : 0,
    );
  });
});

test('a link of the repository that is called as the instruction does not lead its text out of the sandbox', async () => {
  await using folder = await temporaryHome();
  const url = join(folder.home, 'origin');
  await newRepository(url);
  await symlink(join(folder.home, 'outside'), join(url, 'instruction.md'));
  const commit = await commitFiles(url, 'first', {});
  await expect(sandboxWith(folder.home, {}, await taskOf(folder.home, url, commit))).rejects.toThrow(
    /the repository has a file instruction\.md.*set `path`/,
  );
  expect(existsSync(join(folder.home, 'outside'))).toBe(false);
});

test('a repository that is larger than the task’s `storage_mb` is refused', async () => {
  await using folder = await temporaryHome();
  const url = join(folder.home, 'origin');
  await newRepository(url);
  const commit = await commitFiles(url, 'first', { big: 'x'.repeat(2 ** 20 + 1) });
  const task = await taskOf(folder.home, url, commit, '[environment]\nstorage_mb = 1\n');
  await expect(sandboxWith(folder.home, {}, task)).rejects.toThrow(/1 files of 1048577 bytes: more than `storage_mb`/);
});

test('a repository is not placed below a link of an image, which could lead to any folder of this host', async () => {
  await using folder = await temporaryHome();
  const url = join(folder.home, 'origin');
  await newRepository(url);
  const commit = await commitFiles(url, 'first', { 'a.txt': 'a' });
  const files = join(folder.home, 'files');
  await writeFiles(folder.home, { 'files/f': '', 'host/f': '' });
  await symlink('.', join(files, 'u0'));
  await symlink(join(folder.home, 'host'), join(files, 'a'));
  for (const path of ['a/b', 'a', 'u0/b']) {
    const task = await taskOf(folder.home, url, commit, `path = "${path}"\n`);
    const image = { id: 'sha256:1', workdir: '/app', files, env: {} };
    await expect(
      createSandbox({ home: folder.home, trialId: 't', attempt: 1, task, image, backend: await openBackend() }),
    ).rejects.toThrow(/have a link "(a|u0)" where a folder must be/);
  }
  expect(readdirSync(join(folder.home, 'host'))).toEqual(['f']);
});

test('a repository takes its place among an image’s files, without the image’s history, and only the agent’s changes are judged', async () => {
  await using folder = await temporaryHome();
  const { home } = folder;
  const url = join(home, 'origin');
  await newRepository(url);
  const commit = await commitFiles(url, 'first', { 'src/a.py': 'of the commit', 'b.py': 'b' });
  const files = join(home, 'files');
  await writeFiles(home, {
    'files/src/a.py': 'of the image',
    'files/src/a.so': 'built',
    'files/.git/FUTURE': FUTURE,
    'host/b': 'host',
  });
  await symlink(join(home, 'host/b'), join(files, 'b.py'));
  // More than can be judged as an agent's work.
  for (let index = 0; index < 300; index += 1) await writeFile(join(files, `big${index}`), Buffer.alloc(2 ** 20));
  const backend = await openBackend();
  const image = { id: 'sha256:1', workdir: '/app', files, env: {} };
  const script = `cd "$WORK_DIR"; test "$(cat src/a.py src/a.so b.py new)" = "of the commitbuiltbnew" && test -z "$(git status --porcelain -- src/a.py b.py)" && echo 1 > "$LOGS_DIR/verifier/reward.txt"; test -s "$LOGS_DIR/verifier/reward.txt"`;
  const task = await taskOf(home, url, commit, '', script);
  const sandbox = await createSandbox({ home, trialId: 't', attempt: 1, task, image, backend });
  expect(existsSync(join(sandbox.work, '.git/FUTURE'))).toBe(false);
  expect(await readFile(join(home, 'host/b'), 'utf8')).toBe('host');
  await writeFile(join(sandbox.work, 'new'), 'new');
  const judged = { ...sandbox, image };
  const verdict = await verify({ task, sandbox: judged, backend, signal: new AbortController().signal });
  expect(verdict).toMatchObject({ rewards: { reward: 1 }, skipped: [] });
});

test('a repository’s folder is not written through a link of an image', async () => {
  await using folder = await temporaryHome();
  const url = join(folder.home, 'origin');
  await newRepository(url);
  const commit = await commitFiles(url, 'first', { 'src/a.py': 'a' });
  await writeFiles(folder.home, { 'files/f': '', 'host/f': '' });
  const files = join(folder.home, 'files');
  await symlink(join(folder.home, 'host'), join(files, 'src'));
  const image = { id: 'sha256:1', workdir: '/app', files, env: {} };
  const task = await taskOf(folder.home, url, commit);
  await expect(
    createSandbox({ home: folder.home, trialId: 't', attempt: 1, task, image, backend: await openBackend() }),
  ).rejects.toThrow('the image has a file or a link where the repository has a folder');
  expect(readdirSync(join(folder.home, 'host'))).toEqual(['f']);
});

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .toSorted();
}
