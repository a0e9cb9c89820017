import type { SandboxBackend } from './backend.ts';
import { openBackend, openToRemove } from './backends.ts';
import { removeNamed } from './destroy-sandbox.ts';
import { emptyTrash } from './trash.ts';
import { isAlive, ownedNames, readOwner, type Owner } from './owner.ts';

/**
 * Ends the processes that dead workers of this host left and moves their sandboxes to the trash, which is emptied in the background: a
 * worker waits for this before it starts, and removing many large sandboxes takes minutes. A sandbox whose kind cannot be asked, or cannot
 * end it, stays for a later sweep. Returns the names of the sandboxes that are gone. It never fails.
 */
export async function sweepSandboxes(home: string): Promise<string[]> {
  const swept: string[] = [];
  const opened = new Map<string, SandboxBackend | null>();
  for (const name of await ownedNames(home)) {
    const owner = await readOwner(home, name);
    if (!owner || isAlive(owner)) continue;
    const { kind, cluster } = owner;
    const key = cluster === undefined ? kind : JSON.stringify([kind, cluster]);
    if (kind === 'bubblewrap') await removeNamed(home, name, { keepInTrash: true });
    else {
      if (!opened.has(key)) opened.set(key, await openForSweep(owner));
      await opened.get(key)?.destroy(home, name);
    }
    if ((await readOwner(home, name)) === null) swept.push(name);
  }
  swept.push(...(await sweepContainers(home, opened.get('container'))));
  void emptyTrash(home).catch((error: unknown) =>
    console.error(`the sandboxes' trash cannot be emptied: ${String(error)}`),
  );
  return swept;
}

async function openForSweep(owner: Owner): Promise<SandboxBackend | null> {
  try {
    return await openToRemove(owner);
  } catch (error) {
    console.error(
      `sandboxes of dead workers stay, because their kind ${owner.kind} cannot be asked: ${messageOf(error)}`,
    );
    return null;
  }
}

/** Removes containers of sandboxes that have no record any more. A host without a container engine has none. */
async function sweepContainers(home: string, opened: SandboxBackend | null | undefined): Promise<string[]> {
  try {
    const backend = opened === undefined ? await openBackend({ kind: 'container' }).catch(() => null) : opened;
    const swept: string[] = [];
    for (const { name } of (await backend?.find(home)) ?? []) {
      // Another worker may have made a sandbox of this name since.
      if (backend === null || (await readOwner(home, name)) !== null) continue;
      await backend.destroy(home, name);
      swept.push(name);
    }
    if (backend === null || swept.length === 0) return [];
    const left = new Set((await backend.find(home)).map(({ name }) => name));
    return swept.filter((name) => !left.has(name));
  } catch (error) {
    console.error(`the containers of dead workers cannot be listed: ${messageOf(error)}`);
    return [];
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
