import { existsSync, lstatSync, readlinkSync, statSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { REPOSITORY } from '../../core/repository.ts';
import type { Python } from './sandbox-python.ts';

/** A mount: the process sees the host's path `host` at `inside`; without bubblewrap it sees it under its own name. */
export type Mount = { host: string; inside: string; writable: boolean };

export type BubblewrapOptions = {
  bwrap: string;
  /** True when root starts the sandbox and gives it a user of its own. Other users need a user namespace. */
  uid: number | null;
  python: Python | null;
  mounts: Mount[];
  cwd: string;
  /** True when the sandbox shares the host's network; otherwise it has only a loopback of its own. */
  hostNetwork: boolean;
  statusFd?: number;
  /** The file descriptor from which bubblewrap reads the filter of system calls. */
  seccompFd?: number;
};

const SYSTEM = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'];
const ETC = [
  'alternatives',
  'ca-certificates',
  'hosts',
  'ld.so.cache',
  'localtime',
  'nsswitch.conf',
  'pki',
  'resolv.conf',
  'ssl/certs',
  'ssl/openssl.cnf',
].map((name) => `/etc/${name}`);

/** The program that `npx trialgate install` downloads where the PATH has none. */
export const OWN_BUBBLEWRAP = join(REPOSITORY, '.trialgate/tools/bwrap');

/** Returns the path of bubblewrap's program: the one on the PATH, else the downloaded one, else null. */
export function findBubblewrap(): string | null {
  const folders = (process.env.PATH ?? '').split(delimiter).filter(Boolean);
  return (
    [...folders.map((folder) => join(folder, 'bwrap')), OWN_BUBBLEWRAP].find(
      (file) => existsSync(file) && statSync(file).isFile(),
    ) ?? null
  );
}

/** Returns the command line that comes before the process's own. */
export function bubblewrapArgv({
  bwrap,
  uid,
  python,
  mounts,
  cwd,
  hostNetwork,
  statusFd,
  seccompFd,
}: BubblewrapOptions): string[] {
  const user =
    uid === null
      ? ['--unshare-user', '--uid', '65534', '--gid', '65534', '--cap-drop', 'ALL']
      : ['--cap-drop', 'ALL', '--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID'];
  const drop = uid === null ? [] : ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--inh-caps=-all'];
  return [
    bwrap,
    ...['--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try', '--hostname', 'sandbox'],
    ...(hostNetwork ? [] : ['--unshare-net']),
    ...['--die-with-parent', '--new-session', ...user],
    ...(statusFd === undefined ? [] : ['--json-status-fd', String(statusFd)]),
    ...(seccompFd === undefined ? [] : ['--seccomp', String(seccompFd)]),
    ...SYSTEM.flatMap(likeHost),
    ...ETC.flatMap((path) => [...passableParents(path), '--ro-bind-try', path, path]),
    ...['--proc', '/proc', '--dev', '/dev'],
    ...(python?.prefix ? [...passableParents(python.prefix), '--ro-bind', python.prefix, python.prefix] : []),
    ...mounts.flatMap(({ host, inside, writable }) => [
      ...passableParents(inside),
      ...[writable ? '--bind' : '--ro-bind', host, inside],
    ]),
    // `/` and `/dev` are in memory, and a sandbox could fill them. Only its own folders stay writable.
    ...['--remount-ro', '/', '--remount-ro', '/dev', '--chdir', cwd, '--', ...drop],
  ];
}

function likeHost(path: string): string[] {
  if (!existsSync(path)) return [];
  return lstatSync(path).isSymbolicLink() ? ['--symlink', readlinkSync(path), path] : ['--ro-bind', path, path];
}

/** bubblewrap creates the folders above a mount for root only. The sandbox's user must be able to pass through them. */
function passableParents(path: string): string[] {
  const above = [];
  for (let folder = dirname(path); folder !== '/'; folder = dirname(folder))
    above.unshift('--perms', '0755', '--dir', folder);
  return above;
}
