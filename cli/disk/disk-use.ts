import { execFile } from 'node:child_process';
import { readdir, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Returns the bytes that files or folders take on disk, or 0 after `timeout` milliseconds. A file with several names counts once. */
export async function diskUse(paths: string | readonly string[], timeout = 0): Promise<number> {
  if (paths.length === 0) return 0;
  // `du` ends with an error when a file vanishes while it counts, and still prints the sum.
  const { stdout } = await run('du', ['-skc', '--', ...[paths].flat()], { timeout }).catch((error: unknown) => ({
    stdout: error instanceof Error && 'stdout' in error ? String(error.stdout) : '',
  }));
  // The last line is the sum.
  return 1024 * Number(/^\d+/.exec(stdout.trimEnd().split('\n').at(-1) ?? '')?.[0] ?? 0);
}

/** Returns the bytes of each folder of a deployment, the largest first. */
export async function useByFolder(home: string, timeout = 0): Promise<{ folder: string; bytes: number }[]> {
  const entries = await readdir(home, { withFileTypes: true }).catch(() => []);
  const folders = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  const used = await Promise.all(
    folders.map(async (folder) => ({ folder, bytes: await diskUse(join(home, folder), timeout) })),
  );
  return used.toSorted((a, b) => b.bytes - a.bytes);
}

/** Returns a line about the deployment's disk for `status`, which must be quick: folders that take longer to count are left out. */
export async function diskLine(home: string): Promise<string> {
  const used = (await useByFolder(home, 2000)).filter(({ bytes }) => bytes > 0);
  const { bavail, bsize } = await statfs(home);
  const total = used.reduce((sum, { bytes }) => sum + bytes, 0);
  const largest = used.slice(0, 4).map(({ folder, bytes }) => `${folder} ${sizeOf(bytes)}`);
  return `disk: ${sizeOf(total)} in ${home} (${largest.join(', ')}), ${sizeOf(bavail * bsize)} free; \`npx trialgate gc --dry-run\` lists what can go, and what each run uses`;
}

export function sizeOf(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  const value = bytes / 1024 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[power]}`;
}
