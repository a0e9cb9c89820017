import { removeNamed } from './destroy-sandbox.ts';
import { emptyTrash } from './trash.ts';
import { isAlive, ownedNames, readOwner } from './owner.ts';

/**
 * Ends the processes that dead workers of this host left and moves their sandboxes to the trash, which is emptied in the background: a
 * worker waits for this before it starts, and removing many large sandboxes takes minutes. Returns the sandboxes' names. It never fails.
 */
export async function sweepSandboxes(home: string): Promise<string[]> {
  const swept: string[] = [];
  for (const name of await ownedNames(home)) {
    const owner = await readOwner(home, name);
    if (!owner || isAlive(owner)) continue;
    await removeNamed(home, name, { keepInTrash: true });
    swept.push(name);
  }
  void emptyTrash(home).catch((error: unknown) =>
    console.error(`the sandboxes' trash cannot be emptied: ${String(error)}`),
  );
  return swept;
}
