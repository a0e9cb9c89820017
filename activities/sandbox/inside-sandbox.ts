import { realpath, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { OWNERS } from './owner.ts';

/** Returns whether a path lies in a sandbox of any deployment, where an agent may have written it. */
export async function isInsideSandbox(path: string): Promise<boolean> {
  for (let folder = await realpath(path); folder !== dirname(folder); folder = dirname(folder)) {
    const owner = join(dirname(folder), OWNERS, basename(folder));
    if ((await stat(owner).catch(() => null))?.isFile()) return true;
  }
  return false;
}
