import { lstat, statfs } from 'node:fs/promises';
import type { Sandbox } from './create-sandbox.ts';
import { walkFiles } from './walk-files.ts';

/** Below this, what writes fails sooner or later. */
const LEAST_FREE_BYTES = 2 ** 20;
const MAX_FILES = 10_000;

/**
 * Whether the host's disk is full though this sandbox takes no more of it than `allowedMb`: what fails in it then fails for our
 * reasons. One that filled the disk itself has nobody else to blame.
 */
export async function isDiskFullForOthers({ root }: Pick<Sandbox, 'root'>, allowedMb: number): Promise<boolean> {
  const { bavail, bsize, ffree, files } = await statfs(root);
  const full = bavail * bsize < LEAST_FREE_BYTES || (files > 0 && ffree === 0);
  return full && (await takesAtMost(root, allowedMb * 2 ** 20));
}

async function takesAtMost(root: string, bytes: number): Promise<boolean> {
  let [taken, seen] = [0, 0];
  try {
    for await (const { path } of walkFiles(root)) {
      taken += (await lstat(path)).blocks * 512;
      if (taken > bytes || ++seen > MAX_FILES) return false;
    }
    return true;
  } catch {
    // If a folder cannot be read through, the sandbox caused that itself.
    return false;
  }
}
