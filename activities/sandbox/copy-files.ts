import { constants } from 'node:fs';
import { chmod, lstat, mkdir, open, readlink, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { joinBytes, walkFiles, type WalkedEntry } from './walk-files.ts';

const isFolder = async (path: Buffer): Promise<boolean> =>
  (await lstat(path).catch(() => null))?.isDirectory() ?? false;

/** `entries` counts every entry that is found, including folders and entries that are not copied. */
export type CopyLimits = { bytes: number; entries: number };
export type CopyResult = { bytes: number; entries: number; skipped: string[] };

export type CopyOptions = {
  ignore?: string[];
  signal?: AbortSignal | undefined;
  /** Replaces what `to` has already. Without it `to` has nothing by these names. */
  isOver?: boolean;
  /** Gives each file the time of change that it has. Copies of the same file then have the same. */
  keepsTimes?: boolean;
  /** Lets every user read the copy. */
  isReadable?: boolean;
  /** Decides which links are copied, as links. Without it none is. */
  keepsLink?: (path: Buffer, target: Buffer) => boolean | Promise<boolean>;
};

/** Folders that lie deeper are not entered. */
export const MAX_DEPTH = 64;
/** The longest path that Linux accepts. */
const MAX_PATH_BYTES = 4095;

/**
 * Copies only directories, regular files, and the links that `keepsLink` names. It skips other links, devices, sockets and pipes, never
 * follows a link, and skips entries that lie too deep.
 * @throws RangeError when the limits are passed
 */
export async function copyFiles(
  from: string,
  to: string,
  limits: CopyLimits,
  { ignore = [], signal, isReadable = false, isOver = false, keepsTimes = false, keepsLink }: CopyOptions = {},
): Promise<CopyResult> {
  const copied: CopyResult = { bytes: 0, entries: 0, skipped: [] };
  const start = Buffer.byteLength(from) + 1;
  const targetOf = (path: Buffer): Buffer => joinBytes(to, path.subarray(start));
  const ignored = ({ entry, depth }: WalkedEntry): boolean => depth === 0 && ignore.includes(entry.name);
  // The loop sets this for each folder before the walk asks whether to enter it.
  let enters = false;

  await mkdir(to, { recursive: true });
  if (isReadable) await chmod(to, 0o755);
  for await (const walked of walkFiles(from, async () => enters)) {
    signal?.throwIfAborted();
    enters = false;
    if (ignored(walked)) continue;
    copied.entries += 1;
    if (copied.entries > limits.entries) throw tooMuch();
    if (!(await copyEntry(walked))) copied.skipped.push(walked.path.subarray(start).toString('utf8'));
  }
  return copied;

  async function copyEntry(walked: WalkedEntry): Promise<boolean> {
    if (!fits(walked.path) || !fits(targetOf(walked.path))) return false;
    if (isOver) await makeWay(walked);
    if (walked.entry.isFile()) return copyFile(walked.path);
    if (walked.entry.isSymbolicLink()) return copyLink(walked.path);
    enters = walked.entry.isDirectory() && walked.depth < MAX_DEPTH;
    if (enters && !(await isFolder(targetOf(walked.path)))) await mkdir(targetOf(walked.path));
    if (enters && isReadable) await chmod(targetOf(walked.path), 0o755);
    return enters;
  }

  /** Removes what has an entry's place, and is never written through a link. A folder stays where a folder goes. */
  async function makeWay({ entry, path }: WalkedEntry): Promise<void> {
    const target = targetOf(path);
    if (!entry.isDirectory() || !(await isFolder(target))) await rm(target, { recursive: true, force: true });
  }

  async function copyLink(path: Buffer): Promise<boolean> {
    if (!keepsLink) return false;
    const target = await readlink(path, { encoding: 'buffer' });
    if (!(await keepsLink(path.subarray(start), target))) return false;
    await symlink(target, targetOf(path));
    return true;
  }

  async function copyFile(path: Buffer): Promise<boolean> {
    const source = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() => null);
    if (!source) return false;
    try {
      const { size, mode, atime, mtime } = await source.stat();
      copied.bytes += size;
      if (copied.bytes > limits.bytes) throw tooMuch();
      const own = (mode & 0o755) | 0o600;
      await writeFile(targetOf(path), await source.readFile(), { mode: own, signal });
      if (isReadable) await chmod(targetOf(path), own | 0o444);
      if (keepsTimes) await utimes(targetOf(path), atime, mtime);
      return true;
    } finally {
      await source.close();
    }
  }

  function tooMuch(): RangeError {
    return new RangeError(`more than ${limits.bytes} bytes or ${limits.entries} files and folders`);
  }
}

export const fits = (path: Buffer): boolean => path.length <= MAX_PATH_BYTES;
