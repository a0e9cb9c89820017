import { randomUUID } from 'node:crypto';
import { chmod, mkdir, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { remove } from './launcher.ts';
import { sandboxesFolder } from './sandboxes-folder.ts';

/** A removal that takes longer goes on while what waits for it goes on too. */
const PATIENCE_MS = 10_000;

export const trashFolder = async (home: string): Promise<string> => join(await sandboxesFolder(home), '.trash');

/**
 * Moves a sandbox's folder out of the way at once, and removes it. Whatever is in it, its name is free afterwards; what
 * cannot be removed stays in the trash, where `listTrash` finds it.
 * @throws when the folder can neither be moved nor removed: then it is still there
 */
export async function discard(home: string, name: string): Promise<void> {
  const folder = join(await sandboxesFolder(home), name);
  const trash = await trashFolder(home);
  const moved = join(trash, `${name}.${randomUUID()}`);
  try {
    // An agent without bubblewrap may have taken its owner's rights away.
    await chmod(folder, 0o700);
    await mkdir(trash, { recursive: true, mode: 0o700 });
    await rename(folder, moved);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return;
    // A full disk may have no room for another name.
    if (await remove(folder)) throw error;
    return;
  }
  const patience = new AbortController();
  const waiting = sleep(PATIENCE_MS, undefined, { ref: false, signal: patience.signal }).catch(() => {});
  await Promise.race([throwAway(moved), waiting]);
  patience.abort();
}

/** Tries again to remove what earlier removals left. */
export async function emptyTrash(home: string): Promise<void> {
  const trash = await trashFolder(home);
  for (const name of await listTrash(home)) await throwAway(join(trash, name));
}

/** What was left of sandboxes: its removal goes on, or it cannot be removed. */
export async function listTrash(home: string): Promise<string[]> {
  return readdir(await trashFolder(home)).catch(() => []);
}

/** Says what cannot be removed instead of failing: nobody who waits for a removal can do anything about it. */
async function throwAway(path: string): Promise<void> {
  const failure = await remove(path).catch((error: unknown) => String(error));
  if (failure) console.error(`a sandbox cannot be removed whole, and is kept out of the way in ${path}: ${failure}`);
}
