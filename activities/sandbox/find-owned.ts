import type { SandboxKind } from '../../core/run-config/sandbox.ts';
import type { FoundSandbox } from './backend.ts';
import { isAlive, ownedNames, readOwner } from './owner.ts';

/** Returns the sandboxes of a kind that workers of this deployment made, by the records that they wrote before they made them. */
export async function findOwned(home: string, kind: SandboxKind): Promise<FoundSandbox[]> {
  const found: FoundSandbox[] = [];
  for (const name of await ownedNames(home)) {
    const owner = await readOwner(home, name);
    if (owner?.kind === kind) found.push({ home, name, isOwnerAlive: isAlive(owner) });
  }
  return found;
}
