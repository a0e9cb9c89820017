import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, cp, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import type { TaskRepository } from '../../core/task.ts';
import { makeOnce, type MakeOptions } from '../environments/make-once.ts';
import { walkFiles } from '../sandbox/walk-files.ts';
import { git, GitError, TooMuch } from './git.ts';
import { localFolder, shownUrl, withShownUrls } from './repository-url.ts';

/** The deployment's copy of one commit, from which all working copies are made. No agent can write to it. */
export type KeptRepository = {
  /** The objects of this commit and, with `history`, of those before it; no others. */
  objects: string;
  /** A working copy without the objects. */
  files: string;
  /** The size of the files at this commit. */
  size: RepositorySize;
};

export type RepositorySize = { entries: number; bytes: number };

export type Keeping = MakeOptions & {
  /** The deployment's folder. */
  home: string;
  /** The most that its files may be. This is known before they are written, because a small download can have very large files. */
  most?: RepositorySize;
};

/** A repository that is more than its task may have. Another task may have more. */
class TooLarge extends TrialgateError {
  readonly isTooLargeFor: (most: RepositorySize | undefined) => boolean;

  constructor(message: string, isTooLargeFor: TooLarge['isTooLargeFor']) {
    super('bad_input', message);
    this.isTooLargeFor = isTooLargeFor;
  }
}

const isMore = (size: RepositorySize, most: RepositorySize | undefined): boolean =>
  most !== undefined && (size.bytes > most.bytes || size.entries > most.entries);

function tooLarge(size: RepositorySize | null, most: RepositorySize | undefined): TooLarge {
  const what = size === null ? 'more files than can be listed' : `${size.entries} files of ${size.bytes} bytes`;
  const limit = most === undefined ? '' : `: more than \`storage_mb\` or ${most.entries} files`;
  return new TooLarge(`the repository has ${what}${limit}`, (other) => size === null || isMore(size, other));
}

/**
 * Returns the deployment's copy of a commit, which is fetched once. Afterwards no network is needed for it.
 * @throws TrialgateError `bad_input` for a URL or commit that does not exist; Error when the server cannot be reached, which may pass
 */
export async function keptRepository(repository: TaskRepository, keeping: Keeping): Promise<KeptRepository> {
  const { home, most, signal, report = console.error } = keeping;
  const { url, commit, history } = repository;
  const key = createHash('sha256')
    .update(JSON.stringify([url, commit, history]))
    .digest('hex')
    .slice(0, 32);
  const what = `${shownUrl(url)} at ${commit.slice(0, 12)}`;
  const lines = { before: `fetching ${what} (once)`, after: `fetched ${what}` };
  const folder = await makeOnce(join(home, 'repositories', key), lines, { signal, report }, (draft, stopped) =>
    keep(repository, draft, { what, report, most, signal: stopped }),
  ).catch((error: unknown) => {
    // Another task, which may have less, began it.
    if (error instanceof TooLarge && !error.isTooLargeFor(most)) return null;
    throw error;
  });
  if (folder === null) return keptRepository(repository, keeping);
  const size = sizeFile.parse(JSON.parse(await readFile(join(folder, SIZE), 'utf8')));
  if (isMore(size, most)) throw tooLarge(size, most);
  return { objects: join(folder, OBJECTS), files: join(folder, FILES), size };
}

const OBJECTS = 'objects';
const FILES = 'files';
const SIZE = 'size.json';
/** A history may have this many times the bytes that the files at one commit may have. */
const HISTORY = 4;
/** The least limit of what is fetched: very small files need more bytes in a pack. */
const LEAST_PACK = 2 ** 20;
/** At most this many files of attributes are read. */
const MOST_ATTRIBUTES = 100;
const sizeFile = z.object({ entries: z.int(), bytes: z.int() });

/** The one branch of a working copy. */
export const BRANCH = 'main';

type Made = {
  what: string;
  report: (line: string) => void;
  most: RepositorySize | undefined;
  signal: AbortSignal;
};

async function keep(repository: TaskRepository, draft: string, made: Made): Promise<void> {
  const bare = join(draft, 'fetched.git');
  await fetchCommit(repository, bare, made);
  await writeFile(join(draft, SIZE), JSON.stringify(await survey(repository.commit, bare, made)));
  // The server chose what it sent: only objects that the commit needs are kept.
  await git(['-C', bare, 'repack', '-a', '-d', '-n', '-q'], made);
  await rename(join(bare, 'objects'), join(draft, OBJECTS));
  await makeReadable(join(draft, OBJECTS));
  await checkOut(repository.commit, draft, bare, made);
  await rm(bare, { recursive: true });
}

/** Fetches the commit into a new repository, which has nothing else. The URL is in its settings, because the arguments of a process are seen by all users. */
async function fetchCommit({ url, commit, history }: TaskRepository, bare: string, made: Made): Promise<void> {
  const { what, signal, most } = made;
  for (const folder of ['objects', 'refs/heads']) await mkdir(join(bare, folder), { recursive: true });
  await writeFile(join(bare, 'HEAD'), `ref: refs/heads/${BRANCH}\n`);
  // A repository of this machine may belong to another user; nothing in it is run.
  const upload = localFolder(url) === null ? '' : `uploadpack = "git -c safe.directory='*' upload-pack"\n`;
  const settings = `[core]\nrepositoryformatversion = 0\nbare = true\nhooksPath = /dev/null
[fetch]\nunpackLimit = 1\n[gc]\nauto = 0\n[maintenance]\nauto = false\n[repack]\nwriteBitmaps = false
[http]\nlowSpeedLimit = 1000\nlowSpeedTime = 60
[remote "source"]\nurl = ${JSON.stringify(url)}\n${upload}`;
  await writeFile(join(bare, 'config'), settings, { mode: 0o600 });
  const depth = history ? [] : ['--depth=1'];
  const options = ['--quiet', '--no-tags', '--no-recurse-submodules', ...depth];
  const mostBytes = mostFetched(most, history);
  await git(['-C', bare, 'fetch', ...options, 'source', commit], { signal, usesOwnSettings: true, mostBytes }).catch(
    (error: unknown) => {
      if (error instanceof TooMuch && mostBytes !== undefined)
        throw new TooLarge(
          `${what}: its server sends more than ${mostBytes} bytes: raise \`storage_mb\` of the task${history ? ', or leave out `history`' : ''}`,
          (other) => mostBytes >= (mostFetched(other, history) ?? Infinity),
        );
      throw error instanceof GitError ? fetchFailure(what, error.message) : error;
    },
  );
  const type = (await git(['-C', bare, 'cat-file', '-t', commit], made)).trim();
  if (type !== 'commit')
    throw new TrialgateError('bad_input', `${what}: this names a ${type}, not a commit: write the commit's own id`);
  await git(['-C', bare, 'update-ref', `refs/heads/${BRANCH}`, commit], made);
}

/** Returns the most bytes that a server may send. */
const mostFetched = (most: RepositorySize | undefined, history: boolean): number | undefined =>
  most && Math.max(LEAST_PACK, most.bytes * (history ? HISTORY : 1));

function fetchFailure(what: string, printed: string): Error {
  const why = withShownUrls(printed).slice(-500);
  const refuse = (sentence: string) => new TrialgateError('bad_input', `${what}: ${sentence} (git: ${why})`);
  if (/not our ref|unadvertised object|remote ref|no such commit|did not send all necessary objects/i.test(printed))
    return refuse(
      'the repository does not give this commit: check it; if its server gives branches only, make a clone with `git clone --mirror` and name its path as `url`',
    );
  if (
    /Authentication failed|could not read (Username|Password)|Permission denied|terminal prompts disabled/i.test(
      printed,
    )
  )
    return refuse('the repository asks for credentials: set up git for the user who runs the worker');
  if (/not appear to be a git repository|not found|does not exist|not allowed|dubious ownership/i.test(printed))
    return refuse('there is no such repository: check `url`');
  return new Error(`${what} cannot be fetched: ${why}`);
}

/** Makes the working copy: the commit's files, one branch, and nothing that names where they are from. */
async function checkOut(commit: string, draft: string, bare: string, { signal }: Made): Promise<void> {
  const files = join(draft, FILES);
  const own = join(files, '.git');
  for (const folder of ['objects/info', 'objects/pack', 'refs/heads', 'info'])
    await mkdir(join(own, folder), { recursive: true });
  await writeFile(join(own, 'HEAD'), `ref: refs/heads/${BRANCH}\n`);
  await writeFile(join(own, 'refs/heads', BRANCH), `${commit}\n`);
  if (existsSync(join(bare, 'shallow'))) await cp(join(bare, 'shallow'), join(own, 'shallow'));
  // A copy of a file has another inode and another time of change, so that git would read every file at the first `git status`.
  await writeFile(
    join(own, 'config'),
    `[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\tcheckStat = minimal\n\ttrustctime = false
[user]\n\tname = agent\n\temail = agent@localhost\n`,
  );
  const env = { GIT_ALTERNATE_OBJECT_DIRECTORIES: join(draft, OBJECTS) };
  await git([`--git-dir=${own}`, `--work-tree=${files}`, 'read-tree', '--reset', '-u', 'HEAD'], { signal, env });
}

/**
 * Counts the commit's files before they are written, and says what of them a working copy lacks.
 * @throws TooLarge
 */
async function survey(commit: string, bare: string, { what, report, most, signal }: Made): Promise<RepositorySize> {
  const listed = await git(['-C', bare, 'ls-tree', '-r', '-l', '-z', commit], { signal }).catch((error: unknown) => {
    throw error instanceof TooMuch ? tooLarge(null, most) : error;
  });
  const entries = listed.split('\0').flatMap((line) => {
    const found = /^(\d+) \w+ (\w+) +(\d+|-)\t(.*)$/s.exec(line);
    if (!found) return [];
    const [, mode = '', id = '', bytes, path = ''] = found;
    return [{ mode, id, bytes: Number(bytes) || 0, path }];
  });
  const size = { entries: entries.length, bytes: entries.reduce((sum, { bytes }) => sum + bytes, 0) };
  if (isMore(size, most)) throw tooLarge(size, most);
  const submodules = entries.filter(({ mode }) => mode === '160000').map(({ path }) => path);
  if (submodules.length > 0)
    report(
      `${what}: its submodules are not fetched, so these folders are empty: ${submodules.slice(0, 10).join(', ')}`,
    );
  // A link with this name may lead anywhere.
  const attributes = entries.filter(
    ({ mode, bytes, path }) => mode.startsWith('100') && bytes <= 2 ** 20 && /(^|\/)\.gitattributes$/.test(path),
  );
  for (const { id, path } of attributes.slice(0, MOST_ATTRIBUTES))
    if (/\bfilter=lfs\b/.test(await git(['-C', bare, 'cat-file', 'blob', id], { signal }))) {
      report(`${what}: files of Git LFS are not fetched: each is the short text that stands for it (${path})`);
      break;
    }
  return size;
}

/** Lets every user read the objects, which sandboxes share, and nobody write them. */
async function makeReadable(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for await (const { path, entry } of walkFiles(folder)) await chmod(path, entry.isDirectory() ? 0o755 : 0o444);
}
