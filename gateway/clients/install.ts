import { access, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { INSTALLS, REPOSITORY } from '../../cli/folders.ts';
import { pythonTool } from '../../cli/install/python-tools.ts';
import { mustRun } from '../../cli/install/run-step.ts';
import { awaitLock } from '../../cli/supervisor/lock.ts';
import { CLIENTS } from './all.ts';
import type { Install } from './client.ts';

const LOG = join(INSTALLS.root, 'logs/clients.log');

/** Installs all clients that use this installer, one after another. Leaves out a client that does not install. */
export async function installClients(how: 'npm' | 'pip', signal: AbortSignal): Promise<void> {
  const kind = how === 'npm' ? 'npm' : 'python';
  for (const { install: from } of CLIENTS.filter((client) => kind in client.install)) await install(from, signal).catch(() => null);
}

/** Returns the folder of a client's environment, and makes it when it is missing. Clients with the same packages share a folder. Rejects with the reason when the folder cannot be made. */
export async function install(from: Install, signal: AbortSignal): Promise<string> {
  if ('own' in from) return REPOSITORY;
  if ('program' in from) return folderOf(from);
  const name = 'npm' in from ? from.folder : from.python;
  const folder = join(INSTALLS.root, 'clients', name);
  const stamp = join(folder, 'installed.json');
  const wanted = 'npm' in from ? JSON.stringify(from.npm) : await readFile(lockOf(from.python), 'utf8');
  const lock = await awaitLock(folder, 'client', signal);
  try {
    if ((await readFile(stamp, 'utf8').catch(() => null)) === wanted) return folder;
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    await ('npm' in from ? npm(folder, from.npm, signal) : python(folder, lockOf(from.python), signal));
    await writeFile(stamp, wanted);
    return folder;
  } finally {
    await lock.release();
  }
}

const lockOf = (name: string): string => join(import.meta.dirname, `python/requirements-${name}.txt`);

/** Returns the folder of a program that is on the machine. */
async function folderOf({ program, why }: { program: string; why: string }): Promise<string> {
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    if (await access(join(folder, program)).then(() => true, () => false)) return folder;
  }
  throw new Error(why);
}

async function npm(folder: string, wanted: readonly string[], signal: AbortSignal): Promise<void> {
  // The packages' own install steps put their programs into place.
  const allowScripts = Object.fromEntries(wanted.map((each) => [each.replace(/@[^@]*$/, ''), true]));
  await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true, allowScripts }));
  await mustRun(`installing ${wanted.join(' ')}`, LOG, ['npm', 'install', '--no-audit', '--no-fund', '--prefix', folder, ...wanted], { signal });
}

/** The lock names every package. Python compiles a client's imports when the client first runs. */
async function python(folder: string, lock: string, signal: AbortSignal): Promise<void> {
  const uv = await pythonTool('uv', LOG, signal);
  await mustRun('making an environment', LOG, [uv, 'venv', '--quiet', '--allow-existing', '--python', INSTALLS.python, folder], { signal });
  await mustRun(`installing ${lock}`, LOG, [uv, 'pip', 'install', '--quiet', '--no-deps', '--only-binary', ':all:', '--python', join(folder, 'bin/python'), '-r', lock], { signal });
}
