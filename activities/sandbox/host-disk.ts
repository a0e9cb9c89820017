import { lstat, statfs } from 'node:fs/promises';
import type { Sandbox } from './empty-sandbox.ts';
import { walkFiles } from './walk-files.ts';

/** With less free space than this, writes sooner or later fail. */
const LEAST_FREE_BYTES = 2 ** 20;
const MAX_FILES = 10_000;

/**
 * Returns true when the host's disk is full although this sandbox takes at most `allowedMb` of it. Its failures are then the host's fault.
 * A sandbox that filled the disk itself is at fault itself.
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
