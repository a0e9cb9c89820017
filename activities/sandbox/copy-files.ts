import { constants } from 'node:fs';
import { mkdir, open, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export type CopyLimits = { bytes: number; files: number };
export type Copied = { bytes: number; files: number; skipped: string[] };

/**
 * Copies directories and regular files, nothing else: a link, a device, a socket or a pipe is skipped, never followed.
 * @throws RangeError when the limits are passed
 */
export async function copyFiles(from: string, to: string, limits: CopyLimits, ignore: string[] = []): Promise<Copied> {
  const copied: Copied = { bytes: 0, files: 0, skipped: [] };
  await copyFolder('', 0);
  return copied;

  async function copyFolder(path: string, depth: number): Promise<void> {
    await mkdir(join(to, path), { recursive: true });
    for (const entry of await readdir(join(from, path), { withFileTypes: true })) {
      const inner = join(path, entry.name);
      if (depth === 0 && ignore.includes(entry.name)) continue;
      if (entry.isDirectory() && depth < 64) await copyFolder(inner, depth + 1);
      else if (!entry.isFile() || !(await copyFile(inner))) copied.skipped.push(inner);
    }
  }

  async function copyFile(path: string): Promise<boolean> {
    const source = await open(join(from, path), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
      () => null,
    );
    if (!source) return false;
    try {
      const { size, mode } = await source.stat();
      copied.bytes += size;
      copied.files += 1;
      if (copied.bytes > limits.bytes || copied.files > limits.files) {
        throw new RangeError(`more than ${limits.bytes} bytes or ${limits.files} files`);
      }
      await writeFile(join(to, path), await source.readFile(), { mode: (mode & 0o755) | 0o600 });
      return true;
    } finally {
      await source.close();
    }
  }
}
