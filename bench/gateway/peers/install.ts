import { join } from 'node:path';
import { INSTALLS } from '../../../cli/folders.ts';
import { installLocked } from '../../../cli/install/locked-folder.ts';

const LOG = join(INSTALLS.root, 'logs/peers.log');
const folderOf = (name: string): string => join(INSTALLS.root, 'peers', name);

/** Returns the path of a Python peer's program. Installs it from its lock when it is missing. */
export async function fromPyPI(name: 'vllm-router' | 'litellm', signal: AbortSignal): Promise<string> {
  const lock = { python: join(import.meta.dirname, `requirements-${name}.txt`) };
  return join(await installLocked(folderOf(name), lock, { log: LOG, signal }), 'bin', name);
}

/** Returns the path of `file` in an npm peer's package. Installs the peer from its lock when it is missing. */
export async function fromNpm(name: 'portkey', file: string, signal: AbortSignal): Promise<string> {
  const lock = { npm: join(import.meta.dirname, name) };
  return join(await installLocked(folderOf(name), lock, { log: LOG, signal }), 'node_modules', file);
}
