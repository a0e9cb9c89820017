import { removeNamed } from './destroy-sandbox.ts';
import { isAlive, ownedNames, readOwner } from './owner.ts';

/** Removes what workers of this host that are dead now have left, processes too. Returns the names. */
export async function sweepSandboxes(home: string): Promise<string[]> {
  const swept: string[] = [];
  for (const name of await ownedNames(home)) {
    const owner = await readOwner(home, name);
    if (!owner || isAlive(owner)) continue;
    await removeNamed(home, name);
    swept.push(name);
  }
  return swept;
}
