import { randomUUID } from 'node:crypto';
import { chmod, mkdir, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { remove } from './launcher.ts';
import { sandboxesFolder } from './sandboxes-folder.ts';

/** After this time, callers stop waiting for a removal, which continues in the background. */
const PATIENCE_MS = 10_000;

export const trashFolder = async (home: string): Promise<string> => join(await sandboxesFolder(home), '.trash');

/**
 * Moves a sandbox's folder away at once and removes it. Afterwards its name is free, whatever the folder contains. Files that
 * cannot be removed stay in the trash, where `listTrash` finds them.
 * @throws when the folder can be neither moved nor removed, and is therefore still there
 */
export async function discard(home: string, name: string): Promise<void> {
  const moved = await moveToTrash(home, name);
  if (moved === null) return;
  const patience = new AbortController();
  const waiting = sleep(PATIENCE_MS, undefined, { ref: false, signal: patience.signal }).catch(() => {});
  await Promise.race([throwAway(moved), waiting]);
  patience.abort();
}

/**
 * Moves a sandbox's folder to the trash. Returns its new path, or null where there is nothing left to remove.
 * @throws when the folder can be neither moved nor removed
 */
export async function moveToTrash(home: string, name: string): Promise<string | null> {
  const folder = join(await sandboxesFolder(home), name);
  const trash = await trashFolder(home);
  const moved = join(trash, `${name}.${randomUUID()}`);
  try {
    // An agent without bubblewrap may have removed its owner's permissions.
    await chmod(folder, 0o700);
    await mkdir(trash, { recursive: true, mode: 0o700 });
    await rename(folder, moved);
    return moved;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    // A full disk may have no room for another name.
    if (await remove(folder)) throw error;
    return null;
  }
}

/** Tries again to remove the files that earlier removals left. */
export async function emptyTrash(home: string): Promise<void> {
  const trash = await trashFolder(home);
  for (const name of await listTrash(home)) await throwAway(join(trash, name));
}

/** Returns the remains of sandboxes that are still being removed or cannot be removed. */
export async function listTrash(home: string): Promise<string[]> {
  return readdir(await trashFolder(home)).catch(() => []);
}

/** Logs the paths that cannot be removed and does not fail, because nobody who waits for a removal can fix the problem. */
async function throwAway(path: string): Promise<void> {
  const failure = await remove(path).catch((error: unknown) => String(error));
  if (failure)
    console.error(
      `a sandbox cannot be removed whole: ${failure}. Its remains are in ${path} and can be removed by hand`,
    );
}
