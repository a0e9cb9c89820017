import type { SandboxBackend } from './backend.ts';
import type { Sandbox } from './empty-sandbox.ts';
import { isolation, type Isolation } from './isolation.ts';
import { killSandbox } from './kill-tree.ts';
import { removeLeftFiles } from './left-files.ts';
import { markerOf, sandboxName, verifierName } from './names.ts';
import { readOwner, removeOwner } from './owner.ts';
import { releaseUid } from './own-uid.ts';
import { discard, moveToTrash } from './trash.ts';

/** Ends all processes of an attempt's sandbox and removes it. Does nothing when there is no sandbox. */
export async function destroySandbox({
  home,
  trialId,
  attempt,
  backend,
  verifier = backend,
}: {
  home: string;
  trialId: string;
  attempt: number;
  backend: Pick<SandboxBackend, 'destroy'>;
  /** The kind of the sandbox in which the attempt is verified; absent: the attempt's own. */
  verifier?: Pick<SandboxBackend, 'destroy'>;
}): Promise<void> {
  await destroyWithVerifier({ home, name: sandboxName(trialId, attempt) }, backend, verifier);
}

/** Removes a sandbox and the one in which its work is verified. */
export async function destroyWithVerifier(
  { home, name }: Pick<Sandbox, 'home' | 'name'>,
  backend: Pick<SandboxBackend, 'destroy'>,
  verifier: Pick<SandboxBackend, 'destroy'> = backend,
): Promise<void> {
  await backend.destroy(home, name);
  await verifier.destroy(home, verifierName(name));
}

/**
 * This order lets a later run find and finish a removal that was interrupted. It never fails but logs the error, because an agent can
 * leave files that cannot be removed, and that must not lose a verdict or stop a worker's start. `keepInTrash` moves the folder to the
 * trash and does not remove it.
 */
export async function removeNamed(
  home: string,
  name: string,
  { keepInTrash = false, isolation: given }: { keepInTrash?: boolean; isolation?: Isolation } = {},
): Promise<void> {
  try {
    const owner = await readOwner(home, name);
    if (!owner) return;
    const here = given ?? (await isolation());
    await killSandbox(markerOf(home, name), owner.uid, here);
    // The launcher removes these files when the process ends, unless it was killed. The user id may be given to another sandbox.
    if (here.kind === 'user' && owner.uid !== null) await removeLeftFiles(owner.uid);
    await (keepInTrash ? moveToTrash(home, name) : discard(home, name));
    await releaseUid(home, owner.uid);
    await removeOwner(home, name);
  } catch (error) {
    console.error(`sandbox ${name} cannot be removed: ${error instanceof Error ? error.message : String(error)}`);
  }
}
