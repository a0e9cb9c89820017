import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS } from '../folders.ts';
import { runLogged, type Tell } from './run-step.ts';

const OWN = path.join(INSTALLS.tools, 'bwrap');

/** bubblewrap's program: on the PATH, else the one we fetched, else null. */
export function findBubblewrap(): string | null {
  const folders = (process.env['PATH'] ?? '').split(':').filter(Boolean);
  const onPath = folders.map((folder) => path.join(folder, 'bwrap')).find((file) => statSync(file, { throwIfNoEntry: false })?.isFile());
  return onPath ?? (existsSync(OWN) ? OWN : null);
}

export const hasBubblewrap = (): boolean => findBubblewrap() !== null;

/** Fetches Debian's package into our own folder, nothing into the system. Without success agents run only with `--unsandboxed`, which is said. */
export async function installBubblewrap(log: string, signal: AbortSignal, tell: Tell): Promise<void> {
  if (hasBubblewrap()) return;
  mkdirSync(INSTALLS.tools, { recursive: true });
  const folder = mkdtempSync(path.join(INSTALLS.tools, 'apt-'));
  try {
    const fetched = (await download(folder, [], log, signal)) || (await downloadWithOwnLists(folder, log, signal));
    const program = path.join(folder, 'root/usr/bin/bwrap');
    const archive = readdirSync(folder).find((name) => name.endsWith('.deb'));
    if (fetched && archive) await runLogged(log, ['dpkg', '-x', path.join(folder, archive), path.join(folder, 'root')], { signal });
    if (existsSync(program)) copyFileSync(program, OWN);
    else tell('bubblewrap is not to be had here: install it yourself, or agents run only with --unsandboxed');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The system's package lists may be absent (containers) or name versions that are gone: then with lists of our own. */
async function downloadWithOwnLists(folder: string, log: string, signal: AbortSignal): Promise<boolean> {
  const lists = path.join(folder, 'lists');
  mkdirSync(path.join(lists, 'partial'), { recursive: true });
  const own = ['-o', `Dir::State::Lists=${lists}`, '-o', `Dir::Cache=${folder}`, '-o', 'APT::Sandbox::User=root'];
  const updated = await runLogged(log, ['apt-get', ...own, 'update'], { signal });
  return updated.code === 0 && (await download(folder, own, log, signal));
}

async function download(folder: string, options: string[], log: string, signal: AbortSignal): Promise<boolean> {
  const command = ['apt-get', ...options, '-o', 'APT::Sandbox::User=root', 'download', 'bubblewrap'];
  return (await runLogged(log, command, { signal, cwd: folder })).code === 0;
}
