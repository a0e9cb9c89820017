import { isolation } from './isolation.ts';
import { killSandbox } from './kill-tree.ts';
import { markerOf, sandboxName, verifierName } from './names.ts';
import { readOwner, removeOwner } from './owner.ts';
import { releaseUid } from './own-uid.ts';
import { discard } from './trash.ts';

/** Ends whatever still runs in an attempt's sandbox and removes it; nothing happens when there is none. */
export async function destroySandbox({
  home,
  trialId,
  attempt,
}: {
  home: string;
  trialId: string;
  attempt: number;
}): Promise<void> {
  const name = sandboxName(trialId, attempt);
  await removeNamed(home, name);
  await removeNamed(home, verifierName(name));
}

/**
 * In this order, so that a removal that is cut short is found and done again. It never fails: an agent can leave what
 * cannot be removed, and that is no reason to lose a verdict or a worker's start. It is logged instead.
 */
export async function removeNamed(home: string, name: string): Promise<void> {
  try {
    const owner = await readOwner(home, name);
    if (!owner) return;
    await killSandbox(markerOf(home, name), owner.uid, await isolation());
    await discard(home, name);
    await releaseUid(home, owner.uid);
    await removeOwner(home, name);
  } catch (error) {
    console.error(`sandbox ${name} cannot be removed: ${error instanceof Error ? error.message : String(error)}`);
  }
}
