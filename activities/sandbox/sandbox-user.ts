import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { SandboxError } from './errors.ts';
import type { Isolation } from './isolation.ts';

/**
 * Returns the user that a sandbox's processes run as; null means the worker's own user.
 * @throws SandboxError where, without bubblewrap, the sandbox's own user could not reach its folder. Its processes would otherwise run as root.
 */
export function sandboxUser(isolation: Isolation, { uid, root }: { uid: number | null; root: string }): number | null {
  if (!isolation.ownUser) return null;
  if (isolation.kind === 'bubblewrap' || passable(dirname(root))) return uid;
  throw new SandboxError(
    `the sandboxes' users cannot reach ${dirname(root)}: set TMPDIR to a folder that every user can reach, or install bubblewrap`,
  );
}

/** Returns true when every user can reach the folder's content. A folder that does not exist yet is made so. */
export function passable(folder: string): boolean {
  const mode = statSync(folder, { throwIfNoEntry: false })?.mode ?? 0o001;
  return (mode & 0o001) !== 0 && (folder === dirname(folder) || passable(dirname(folder)));
}
