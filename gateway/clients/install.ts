import { execFile } from 'node:child_process';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { INSTALLS, REPOSITORY } from '../../cli/folders.ts';
import type { Client } from './client.ts';

const run = promisify(execFile);

/** The client's folder, with what it needs installed: a virtual environment, or npm's. Rejects where that does not install. */
export async function install({ name, install: from }: Pick<Client, 'name' | 'install'>, signal: AbortSignal): Promise<string> {
  if ('own' in from) return REPOSITORY;
  const folder = join(INSTALLS.root, 'clients', name);
  const stamp = join(folder, 'installed.json');
  const wanted = JSON.stringify(from);
  if ((await readFile(stamp, 'utf8').catch(() => null)) === wanted) return folder;
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  if ('npm' in from) {
    // Their own steps after the install put the program into its place.
    await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true, allowScripts: { [from.npm.replace(/@[^@]*$/, '')]: true } }));
    await run('npm', ['install', '--no-audit', '--no-fund', '--prefix', folder, from.npm], { signal });
  } else {
    await run(INSTALLS.python, ['-m', 'venv', folder], { signal });
    await run(join(folder, 'bin/python'), ['-m', 'pip', 'install', '--quiet', ...from.pip], { signal });
  }
  await writeFile(stamp, wanted);
  return folder;
}
