import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { INSTALLS } from '../../cli/folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { installLocked, type PackageLock } from '../../cli/install/locked-folder.ts';
import { CLIENTS } from './all.ts';
import type { Install } from './client.ts';

const LOG = join(INSTALLS.root, 'logs/clients.log');

/** Installs all clients of this installer, one after another. Skips a client that does not install. */
export async function installClients(how: 'npm' | 'pip', signal: AbortSignal): Promise<void> {
  const kind = how === 'npm' ? 'npm' : 'python';
  for (const { install: from } of CLIENTS.filter((client) => kind in client.install))
    await install(from, signal).catch(() => null);
}

/**
 * Returns the folder of a client's environment, creating it if missing. Clients with the same packages share one. Rejects with the reason
 * if it cannot be created.
 */
export async function install(from: Install, signal: AbortSignal): Promise<string> {
  if ('own' in from) return REPOSITORY;
  if ('program' in from) return folderOf(from);
  const name = 'npm' in from ? from.npm : from.python;
  return installLocked(join(INSTALLS.root, 'clients', name), lockOf(from), { log: LOG, signal });
}

/** Returns the lock of a client's packages. */
export const lockOf = (from: PackageLock): PackageLock =>
  'npm' in from
    ? { npm: join(import.meta.dirname, 'npm', from.npm) }
    : { python: join(import.meta.dirname, `python/requirements-${from.python}.txt`) };

/** Returns the folder of a program that the machine has. */
async function folderOf({ program, why }: { program: string; why: string }): Promise<string> {
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    if (
      await access(join(folder, program)).then(
        () => true,
        () => false,
      )
    )
      return folder;
  }
  throw new Error(why);
}
