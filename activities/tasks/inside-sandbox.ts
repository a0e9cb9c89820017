import { realpath, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { OWNERS } from '../sandbox/owner.ts';

/**
 * Returns true when a path lies in a sandbox of any deployment, or in the remains of one, where an agent may have written it. All of them
 * are in a folder that has the list of their owners.
 */
export async function isInsideSandbox(path: string): Promise<boolean> {
  for (let folder = await realpath(path); folder !== dirname(folder); folder = dirname(folder)) {
    const owners = await stat(join(folder, OWNERS)).catch(() => null);
    // Any user can make such a folder in /tmp.
    if (owners?.isDirectory() && [0, process.getuid?.()].includes(owners.uid)) return true;
  }
  return false;
}
