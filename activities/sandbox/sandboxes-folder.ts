import { createHash } from 'node:crypto';
import { chmod, mkdir, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SandboxError } from './errors.ts';
import { isolation } from './isolation.ts';
import { passable } from './sandbox-user.ts';

/**
 * Returns the folder of the sandboxes: `HOME/sandboxes`, or a folder below the system's temporary one when root has no bubblewrap and
 * sandbox users cannot reach HOME (one in /root).
 */
export async function sandboxesFolder(home: string): Promise<string> {
  const { kind } = await isolation();
  if (kind !== 'user' || passable(home)) return join(home, 'sandboxes');
  // TMPDIR may be closed to other users too.
  const temporary = [tmpdir(), '/tmp', '/var/tmp'].find(passable) ?? tmpdir();
  return join(temporary, `trialgate-${createHash('sha256').update(home).digest('hex').slice(0, 12)}`, 'sandboxes');
}

/** Makes the folder. Sandbox users can pass through it, but cannot list it. */
export async function openSandboxesFolder(home: string): Promise<string> {
  const folder = await sandboxesFolder(home);
  await mkdir(folder, { recursive: true });
  if ((await stat(folder)).uid !== process.getuid?.()) {
    throw new SandboxError(
      `${folder} belongs to another user: remove it, or set TRIALGATE_HOME to a folder of your own`,
    );
  }
  await chmod(folder, 0o711);
  return folder;
}
