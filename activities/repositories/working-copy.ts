import { execFile } from 'node:child_process';
import { lstat, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { TrialgateError } from '../../core/errors.ts';
import type { TaskRepository } from '../../core/task.ts';
import type { Mount } from '../sandbox/bubblewrap.ts';
import { makeRealFolder, writeInside } from '../sandbox/write-inside.ts';
import { keptRepository, type Keeping } from './kept-repository.ts';

const run = promisify(execFile);

/** The path at which sandboxes find the objects that they share. */
const SHARED = '/repository/objects';
/** The most files of a repository. A task's own files have the same limit. */
const MOST_ENTRIES = 100_000;

type Placing = Omit<Keeping, 'most'> & {
  /** The sandbox's work folder. */
  work: string;
  /** True when the sandbox sees files of the host by mounts. */
  hasMounts: boolean;
  /** True when the folder may have files, of an image. The repository's files take the place of those with the same names, and its `.git` that of any other. */
  isOver: boolean;
  /** The most bytes of the files. */
  bytes: number;
};

/**
 * Puts a working copy of a task's repository into a sandbox's work folder, where no agent has worked yet, and returns what the sandbox must mount to read its objects. Where
 * sandboxes have mounts, all copies share the objects, and none can change them. Elsewhere a sandbox's user could, or could read those of other
 * commits, so each copy has its own.
 * @throws TrialgateError `bad_input` for a repository that does not exist or is too large
 */
export async function placeRepository(
  repository: TaskRepository,
  { work, hasMounts, isOver, bytes, ...keeping }: Placing,
): Promise<Mount[]> {
  const { objects, files } = await keptRepository(repository, { ...keeping, most: { bytes, entries: MOST_ENTRIES } });
  const { signal } = keeping;
  const target = await makeRealFolder(work, repository.path);
  if (isOver) await rm(join(target, '.git'), { recursive: true, force: true });
  else if ((await readdir(target)).length > 0)
    throw new TrialgateError(
      'bad_input',
      'environment/ has files where the repository goes: set `path` of the repository to another folder',
    );
  await copyTree(files, target, signal);
  const own = join(target, '.git');
  if (repository.path === '.') await excludeInstruction(files, own);
  if (!hasMounts) {
    await copyTree(objects, join(own, 'objects'), signal);
    return [];
  }
  await writeInside(join(own, 'objects/info'), 'alternates', `${SHARED}\n`);
  return [{ host: objects, inside: SHARED, writable: false }];
}

/** Copies a folder's content with its times. Where the disk can do it, both share their blocks until one changes. */
async function copyTree(from: string, to: string, signal: AbortSignal): Promise<void> {
  const env = { PATH: process.env.PATH, LC_ALL: 'C' };
  await run('cp', ['-a', '--reflink=auto', '--remove-destination', '--', `${from}/.`, to], { signal, env }).catch(
    (error: unknown) => {
      signal.throwIfAborted();
      const printed = error instanceof Error && 'stderr' in error ? String(error.stderr) : '';
      // A link in the place of a folder is not followed either.
      const blocked = /cannot overwrite (?:non-)?directory .*/.exec(printed)?.[0];
      if (blocked !== undefined)
        throw new TrialgateError(
          'bad_input',
          `the image has a file or a link where the repository has a folder, or the other way round: ${blocked}`,
        );
      if (!/No space left on device|Disk quota exceeded/i.test(printed)) throw error;
      throw Object.assign(new Error('the disk is full'), { code: 'ENOSPC' });
    },
  );
}

/** The instruction lies beside the repository's files and is none of them. A link of the repository must not lead its text elsewhere. */
async function excludeInstruction(files: string, own: string): Promise<void> {
  const name = 'instruction.md';
  if (await lstat(join(files, name)).catch(() => null))
    throw new TrialgateError(
      'bad_input',
      `the repository has a file ${name}, where the agent finds its instruction: set \`path\` of the repository to a folder`,
    );
  await writeInside(join(own, 'info'), 'exclude', `/${name}\n`);
}
