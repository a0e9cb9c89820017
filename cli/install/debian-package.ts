import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS } from '../folders.ts';
import { runLogged } from './run-step.ts';

/** Copies one file of a Debian package into our own folder and installs nothing in the system. Returns false if it cannot. */
export async function fetchDebianFile(
  wanted: { name: string; file: string; target: string },
  log: string,
  signal: AbortSignal,
): Promise<boolean> {
  mkdirSync(INSTALLS.tools, { recursive: true });
  const folder = mkdtempSync(path.join(INSTALLS.tools, 'apt-'));
  try {
    await unpackDebianPackages([wanted.name], folder, log, signal);
    const found = path.join(folder, 'root', wanted.file);
    if (!existsSync(found)) return false;
    copyFileSync(found, wanted.target);
    return true;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Unpacks Debian packages, without those that they need, into `folder/root`. Returns false if one cannot be had. */
export async function unpackDebianPackages(
  names: readonly string[],
  folder: string,
  log: string,
  signal: AbortSignal,
): Promise<boolean> {
  const fetched =
    (await download(names, folder, [], log, signal)) || (await downloadWithOwnLists(names, folder, log, signal));
  if (!fetched) return false;
  for (const archive of readdirSync(folder).filter((name) => name.endsWith('.deb'))) {
    const unpack = ['dpkg', '-x', path.join(folder, archive), path.join(folder, 'root')];
    if ((await runLogged(log, unpack, { signal })).code !== 0) return false;
  }
  return true;
}

/** Uses package lists of our own if the system's lists are absent (containers) or name versions that no longer exist. */
async function downloadWithOwnLists(
  names: readonly string[],
  folder: string,
  log: string,
  signal: AbortSignal,
): Promise<boolean> {
  const lists = path.join(folder, 'lists');
  mkdirSync(path.join(lists, 'partial'), { recursive: true });
  const own = ['-o', `Dir::State::Lists=${lists}`, '-o', `Dir::Cache=${folder}`, '-o', 'APT::Sandbox::User=root'];
  const updated = await runLogged(log, ['apt-get', ...own, 'update'], { signal });
  return updated.code === 0 && (await download(names, folder, own, log, signal));
}

async function download(
  names: readonly string[],
  folder: string,
  options: string[],
  log: string,
  signal: AbortSignal,
): Promise<boolean> {
  const command = ['apt-get', ...options, '-o', 'APT::Sandbox::User=root', 'download', ...names];
  return (await runLogged(log, command, { signal, cwd: folder })).code === 0;
}
