import { existsSync } from 'node:fs';
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { INSTALLS } from '../folders.ts';
import { awaitLock } from '../../core/lock.ts';
import { FROM_LOCK } from './locks.ts';
import { findPython } from './python.ts';
import { pythonTool } from './python-tools.ts';
import { mustRun } from './run-step.ts';

/** A lock with the digest of each package: a folder with npm's `package.json` and `package-lock.json`, or a requirements file of uv. */
export type PackageLock = { npm: string } | { python: string };

type Options = {
  log: string;
  signal: AbortSignal;
  /** The Python of which an environment is made; absent: the one that Trialgate itself uses. */
  base?: string;
};

/** Makes `folder` with the packages of a lock, unless it has them. No package is built or runs an install script. */
export async function installLocked(folder: string, from: PackageLock, options: Options): Promise<string> {
  const { signal } = options;
  const lock = await awaitLock(folder, 'locked-folder', signal);
  try {
    if (await isInstalled(folder, from)) return folder;
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    await ('npm' in from ? npm(folder, from.npm, options) : python(folder, from.python, options));
    await writeFile(stampOf(folder), await wantedBy(from));
    return folder;
  } finally {
    await lock.release();
  }
}

/** True when `folder` has the packages of a lock, all of them. */
export async function isInstalled(folder: string, from: PackageLock): Promise<boolean> {
  return (await readFile(stampOf(folder), 'utf8').catch(() => null)) === (await wantedBy(from));
}

/** Has the lock's text. It is written last, so a torn folder has none. */
const stampOf = (folder: string): string => join(folder, 'installed-lock');
const wantedBy = (from: PackageLock): Promise<string> =>
  readFile('npm' in from ? join(from.npm, 'package-lock.json') : from.python, 'utf8');

async function npm(folder: string, source: string, { log, signal }: Options): Promise<void> {
  for (const file of ['package.json', 'package-lock.json']) await cp(join(source, file), join(folder, file));
  await mustRun(`installing ${source}`, log, ['npm', 'ci', '--ignore-scripts', '--no-audit', '--no-fund'], {
    signal,
    cwd: folder,
  });
}

async function python(
  folder: string,
  requirements: string,
  { log, signal, base = ownPython() }: Options,
): Promise<void> {
  const uv = await pythonTool('uv', log, signal);
  await mustRun('making an environment', log, [uv, 'venv', '--quiet', '--allow-existing', '--python', base, folder], {
    signal,
  });
  await mustRun(
    `installing ${requirements}`,
    log,
    [uv, 'pip', ...FROM_LOCK, '--quiet', '--python', join(folder, 'bin/python'), '-r', requirements],
    { signal },
  );
}

const ownPython = (): string => (existsSync(INSTALLS.python) ? INSTALLS.python : findPython(undefined).path);
