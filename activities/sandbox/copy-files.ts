import { constants } from 'node:fs';
import { chmod, mkdir, open, writeFile } from 'node:fs/promises';
import { joinBytes, walkFiles, type WalkedEntry } from './walk-files.ts';

/** `entries` counts every entry that is found, including folders and entries that are not copied. */
export type CopyLimits = { bytes: number; entries: number };
export type CopyResult = { bytes: number; entries: number; skipped: string[] };

type Options = {
  ignore?: string[];
  signal?: AbortSignal;
  /** Lets every user read the copy. */
  isReadable?: boolean;
};

const MAX_DEPTH = 64;
/** The longest path that Linux accepts. */
const MAX_PATH_BYTES = 4095;

/**
 * Copies only directories and regular files. It skips links, devices, sockets and pipes, never follows a link,
 * and skips entries that lie too deep.
 * @throws RangeError when the limits are passed
 */
export async function copyFiles(
  from: string,
  to: string,
  limits: CopyLimits,
  { ignore = [], signal, isReadable = false }: Options = {},
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
    if (walked.entry.isFile()) return copyFile(walked.path);
    enters = walked.entry.isDirectory() && walked.depth < MAX_DEPTH;
    if (enters) await mkdir(targetOf(walked.path));
    if (enters && isReadable) await chmod(targetOf(walked.path), 0o755);
    return enters;
  }

  async function copyFile(path: Buffer): Promise<boolean> {
    const source = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() => null);
    if (!source) return false;
    try {
      const { size, mode } = await source.stat();
      copied.bytes += size;
      if (copied.bytes > limits.bytes) throw tooMuch();
      const own = (mode & 0o755) | 0o600;
      await writeFile(targetOf(path), await source.readFile(), { mode: own, signal });
      if (isReadable) await chmod(targetOf(path), own | 0o444);
      return true;
    } finally {
      await source.close();
    }
  }

  function tooMuch(): RangeError {
    return new RangeError(`more than ${limits.bytes} bytes or ${limits.entries} files and folders`);
  }
}

const fits = (path: Buffer): boolean => path.length <= MAX_PATH_BYTES;
