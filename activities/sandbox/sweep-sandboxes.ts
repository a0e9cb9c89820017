import { removeNamed } from './destroy-sandbox.ts';
import { emptyTrash } from './trash.ts';
import { isAlive, ownedNames, readOwner } from './owner.ts';

/** Removes the sandboxes and processes that dead workers of this host left. Returns the sandboxes' names. It never fails. */
export async function sweepSandboxes(home: string): Promise<string[]> {
  const swept: string[] = [];
  for (const name of await ownedNames(home)) {
    const owner = await readOwner(home, name);
    if (!owner || isAlive(owner)) continue;
    await removeNamed(home, name);
    swept.push(name);
  }
  // Entries that an earlier sweep could not remove may take long again, so nothing waits for them.
  void emptyTrash(home).catch((error: unknown) => console.error(`the sandboxes' trash cannot be emptied: ${String(error)}`));
  return swept;
}
