import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Isolation } from './isolation.ts';

/**
 * The user that a sandbox's processes run as; null: the worker's own, also where, without bubblewrap, a user of its own
 * could not come to the sandbox's folder.
 */
export function sandboxUser(isolation: Isolation, { uid, root }: { uid: number | null; root: string }): number | null {
  if (!isolation.ownUser) return null;
  return isolation.kind === 'bubblewrap' || passable(dirname(root)) ? uid : null;
}

/** Whether every user may come to what is in the folder; one that does not exist yet is made so. */
export function passable(folder: string): boolean {
  const mode = statSync(folder, { throwIfNoEntry: false })?.mode ?? 0o001;
  return (mode & 0o001) !== 0 && (folder === dirname(folder) || passable(dirname(folder)));
}
