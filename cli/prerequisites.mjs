// What a machine must have before anything is installed. Plain JavaScript for Node 20 without packages, because `bootstrap.mjs` asks before `npm ci`.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';

/** The gigabytes that the installed packages and models take, by device. */
export const NEEDED_GB = { cpu: 10, cuda: 20 };

const CANDIDATES = ['python3.13', 'python3.12', 'python3.11', 'python3'];
const PROBE = 'import sys; print(sys.executable); print("%d.%d.%d" % sys.version_info[:3]); import venv, ensurepip';

/** Returns what is wrong with this system, or null. On others pip would skip every locked package without an error. */
export function systemLack() {
  const system = `${process.platform}-${process.arch}`;
  return system === 'linux-x64' ? null : `Trialgate runs on Linux on x86-64 (linux-x64); this is ${system}`;
}

/**
 * Looks for a Python from 3.11 to 3.13 that can make virtual environments: the named one, else the first on the PATH. Otherwise `lack`
 * says what is missing.
 */
export function lookForPython(named) {
  const without = [];
  const wrong = [];
  for (const name of named ? [named] : CANDIDATES) {
    const probe = spawnSync(name, ['-c', PROBE], { encoding: 'utf8', timeout: 20_000 });
    const [path = '', version = ''] = (probe.stdout ?? '').trim().split('\n');
    if (!version) continue;
    const minor = Number(version.split('.')[1]);
    if (!version.startsWith('3.') || minor < 11 || minor > 13) wrong.push(`${name} is ${version}`);
    else if (probe.status !== 0) without.push(`${name} (${version})`);
    else return { path, version, lack: null };
  }
  if (without.length)
    return {
      lack: `${without.join(', ')} cannot make virtual environments: install its venv module (Debian, Ubuntu: \`apt-get install python3-venv\`)`,
    };
  const found = wrong.length ? wrong.join(', ') : named ? `${named} cannot be run` : 'none is on the PATH';
  return {
    lack: `Python 3.11, 3.12 or 3.13 is needed and ${found}: install one (Debian, Ubuntu: \`apt-get install python3 python3-venv\`), or name one with TRIALGATE_PYTHON`,
  };
}

/** Returns the free gigabytes of the disk that has this folder. */
export function freeGigabytes(folder) {
  const { bavail, bsize } = fs.statfsSync(folder);
  return (bavail * bsize) / 1e9;
}

/** Returns what the disk of this folder lacks, or null when it has so many gigabytes free. */
export function diskLack(folder, gigabytes) {
  const free = freeGigabytes(folder);
  return free >= gigabytes
    ? null
    : `the disk of ${folder} has ${free.toFixed(1)} GB free and about ${gigabytes} GB are needed: free some space`;
}

/** Returns one message for all that is missing. */
export const inOneMessage = (lacks) =>
  lacks.length === 1
    ? lacks[0]
    : `${lacks.length} things are missing on this machine:${lacks.map((lack) => `\n  - ${lack}`).join('')}`;
