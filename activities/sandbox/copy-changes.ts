import { constants, type BigIntStats } from 'node:fs';
import { lstat, mkdir, open, readlink, rm, writeFile } from 'node:fs/promises';
import { fits, MAX_DEPTH, type CopyLimits, type CopyResult } from './copy-files.ts';
import { joinBytes, walkFiles, type WalkedEntry } from './walk-files.ts';

type Options = {
  /** The folder of the repository within both folders. What is called `.git` in it is not copied. */
  repository: string;
  signal: AbortSignal;
};

/**
 * Makes `to`, which is as `from` was before an agent worked there, like `from` is now: copies files that are new or changed and removes those
 * that are gone. Only these count for the limits. A file with the size and the time of change that it had is taken to be unchanged: an agent
 * that sets the time back gets the file as it was. Links, devices and the like are not copied; a link that both have stays.
 * @throws RangeError when the limits are passed
 */
export async function copyChanges(
  from: string,
  to: string,
  limits: CopyLimits,
  { repository, signal }: Options,
): Promise<CopyResult> {
  const changed: CopyResult = { bytes: 0, entries: 0, skipped: [] };
  const seen = new Set<string>();
  const start = Buffer.byteLength(from) + 1;
  const isGit = gitWithin(repository);
  // The loop sets this for each folder before the walk asks whether to enter it.
  let enters = false;

  for await (const walked of walkFiles(from, async () => enters)) {
    signal.throwIfAborted();
    enters = false;
    const path = walked.path.subarray(start).toString('latin1');
    if (isGit(path)) continue;
    seen.add(path);
    const target = joinBytes(to, walked.path.subarray(start));
    if (!fits(walked.path) || !fits(target)) {
      count(0);
      changed.skipped.push(walked.path.subarray(start).toString('utf8'));
      continue;
    }
    const there = await lstat(target, { bigint: true }).catch(() => null);
    if (!(await isKept(walked, target, there))) await replace(walked, target, there);
  }
  await removeGone();
  return changed;

  async function isKept({ entry, path, depth }: WalkedEntry, target: Buffer, there: BigIntStats | null) {
    if (there === null) return false;
    if (entry.isDirectory()) return (enters = there.isDirectory() && depth < MAX_DEPTH);
    if (entry.isSymbolicLink()) return there.isSymbolicLink() && (await readlink(path)) === (await readlink(target));
    if (!entry.isFile() || !there.isFile()) return false;
    const here = await lstat(path, { bigint: true });
    return here.size === there.size && here.mtimeNs === there.mtimeNs && (here.mode & 0o100n) === (there.mode & 0o100n);
  }

  async function replace({ entry, path, depth }: WalkedEntry, target: Buffer, there: BigIntStats | null) {
    count(0);
    if (there !== null) await rm(target, { recursive: true, force: true });
    if (entry.isDirectory() && depth < MAX_DEPTH) {
      await mkdir(target);
      enters = true;
    } else if (!entry.isFile() || !(await copyFile(path, target)))
      changed.skipped.push(path.subarray(start).toString('utf8'));
  }

  async function copyFile(path: Buffer, target: Buffer): Promise<boolean> {
    const source = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() => null);
    if (!source) return false;
    try {
      const { size, mode } = await source.stat();
      count(size, 0);
      await writeFile(target, await source.readFile(), { mode: (mode & 0o755) | 0o600, signal });
      return true;
    } finally {
      await source.close();
    }
  }

  async function removeGone(): Promise<void> {
    const begin = Buffer.byteLength(to) + 1;
    const gone: Buffer[] = [];
    let isGone = false;
    for await (const { path: target } of walkFiles(to, async () => !isGone)) {
      const path = target.subarray(begin).toString('latin1');
      isGone = !isGit(path) && !seen.has(path);
      if (isGone) gone.push(target);
    }
    for (const target of gone) {
      count(0);
      await rm(target, { recursive: true, force: true });
    }
  }

  function count(bytes: number, entries = 1): void {
    changed.bytes += bytes;
    changed.entries += entries;
    if (changed.bytes > limits.bytes || changed.entries > limits.entries)
      throw new RangeError(`more than ${limits.bytes} bytes or ${limits.entries} files and folders were changed`);
  }
}

/** Returns whether a path is called `.git`, or lies in such a folder, within the repository. */
function gitWithin(repository: string): (path: string) => boolean {
  const inside = repository === '.' ? '' : `${Buffer.from(repository).toString('latin1')}/`;
  return (path) => path.startsWith(inside) && path.slice(inside.length).split('/').includes('.git');
}
