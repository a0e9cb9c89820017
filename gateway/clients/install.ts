import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { INSTALLS, REPOSITORY } from '../../cli/folders.ts';
import { mustRun } from '../../cli/install/run-step.ts';
import { awaitLock } from '../../cli/supervisor/lock.ts';
import { CLIENTS } from './all.ts';
import type { Client } from './client.ts';

const LOG = join(INSTALLS.root, 'logs/clients.log');

/** All that come this way, one after another; what does not install is left out. */
export async function installClients(how: 'npm' | 'pip', signal: AbortSignal): Promise<void> {
  for (const client of CLIENTS.filter(({ install: from }) => how in from)) await install(client, signal).catch(() => null);
}

/** The client's folder, with what it needs installed: a virtual environment, or npm's. Rejects where that does not install. */
export async function install({ name, install: from }: Pick<Client, 'name' | 'install'>, signal: AbortSignal): Promise<string> {
  if ('own' in from) return REPOSITORY;
  const folder = join(INSTALLS.root, 'clients', name);
  const stamp = join(folder, 'installed.json');
  const wanted = JSON.stringify(from);
  const lock = await awaitLock(folder, 'client', signal);
  try {
    if ((await readFile(stamp, 'utf8').catch(() => null)) === wanted) return folder;
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    await ('npm' in from ? npm(folder, from.npm, signal) : pip(folder, from.pip, signal));
    await writeFile(stamp, wanted);
    return folder;
  } finally {
    await lock.release();
  }
}

async function npm(folder: string, wanted: string, signal: AbortSignal): Promise<void> {
  // Their own steps after the install put the program into its place.
  await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true, allowScripts: { [wanted.replace(/@[^@]*$/, '')]: true } }));
  await mustRun(`installing ${wanted}`, LOG, ['npm', 'install', '--no-audit', '--no-fund', '--prefix', folder, wanted], { signal });
}

/** By our own environment's pip; what a client imports is compiled when it first does. */
async function pip(folder: string, wanted: readonly string[], signal: AbortSignal): Promise<void> {
  await mustRun('making an environment', LOG, [INSTALLS.python, '-m', 'venv', '--without-pip', folder], { signal });
  await mustRun(`installing ${wanted.join(' ')}`, LOG, [INSTALLS.python, '-m', 'pip', '--python', join(folder, 'bin/python'), 'install', '--quiet', '--no-compile', ...wanted], { signal });
}
