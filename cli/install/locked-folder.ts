import { existsSync } from 'node:fs';
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { INSTALLS } from '../folders.ts';
import { awaitLock } from '../supervisor/lock.ts';
import { FROM_LOCK } from './locks.ts';
import { findPython } from './python.ts';
import { pythonTool } from './python-tools.ts';
import { mustRun } from './run-step.ts';

/** A lock with the digest of each package: a folder with npm's `package.json` and `package-lock.json`, or a requirements file of uv. */
export type PackageLock = { npm: string } | { python: string };

type Options = { log: string; signal: AbortSignal };

/** Makes `folder` with the packages of a lock, unless it has them. No package is built or runs an install script. */
export async function installLocked(folder: string, from: PackageLock, { log, signal }: Options): Promise<string> {
  const stamp = join(folder, 'installed-lock');
  const wanted = await readFile('npm' in from ? join(from.npm, 'package-lock.json') : from.python, 'utf8');
  const lock = await awaitLock(folder, 'locked-folder', signal);
  try {
    if ((await readFile(stamp, 'utf8').catch(() => null)) === wanted) return folder;
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    await ('npm' in from ? npm(folder, from.npm, { log, signal }) : python(folder, from.python, { log, signal }));
    await writeFile(stamp, wanted);
    return folder;
  } finally {
    await lock.release();
  }
}

async function npm(folder: string, source: string, { log, signal }: Options): Promise<void> {
  for (const file of ['package.json', 'package-lock.json']) await cp(join(source, file), join(folder, file));
  await mustRun(`installing ${source}`, log, ['npm', 'ci', '--ignore-scripts', '--no-audit', '--no-fund'], {
    signal,
    cwd: folder,
  });
}

async function python(folder: string, requirements: string, { log, signal }: Options): Promise<void> {
  const uv = await pythonTool('uv', log, signal);
  const base = existsSync(INSTALLS.python) ? INSTALLS.python : findPython(undefined).path;
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
