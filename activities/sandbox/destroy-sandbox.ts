import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { hostWork } from './errors.ts';
import { isolation } from './isolation.ts';
import { killSandbox } from './kill-tree.ts';
import { markerOf, sandboxName, verifierName } from './names.ts';
import { readOwner, removeOwner } from './owner.ts';
import { releaseUid } from './own-uid.ts';
import { sandboxesFolder } from './sandboxes-folder.ts';

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

/** In this order, so that a removal that is cut short is found and done again. */
export async function removeNamed(home: string, name: string): Promise<void> {
  await hostWork(`removing sandbox ${name}`, async () => {
    const owner = await readOwner(home, name);
    if (!owner) return;
    await killSandbox(markerOf(home, name), owner.uid, await isolation());
    await rm(join(await sandboxesFolder(home), name), { recursive: true, force: true, maxRetries: 3 });
    await releaseUid(home, owner.uid);
    await removeOwner(home, name);
  });
}
