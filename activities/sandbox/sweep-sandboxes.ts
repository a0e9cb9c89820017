import { removeNamed } from './destroy-sandbox.ts';
import { emptyTrash } from './trash.ts';
import { isAlive, ownedNames, readOwner } from './owner.ts';

/** Removes what workers of this host that are dead now have left, processes too. Returns the names. It never fails. */
export async function sweepSandboxes(home: string): Promise<string[]> {
  const swept: string[] = [];
  for (const name of await ownedNames(home)) {
    const owner = await readOwner(home, name);
    if (!owner || isAlive(owner)) continue;
    await removeNamed(home, name);
    swept.push(name);
  }
  // What an earlier sweep could not remove may take long again: nobody waits for it.
  void emptyTrash(home).catch((error: unknown) => console.error(`the sandboxes' trash cannot be emptied: ${String(error)}`));
  return swept;
}
