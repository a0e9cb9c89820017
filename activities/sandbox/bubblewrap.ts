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
  /** True when the sandbox's processes can make namespaces with a /proc of their own. */
  canNest?: boolean;
  statusFd?: number;
  /** The file descriptor from which bubblewrap reads the filter of system calls. */
  seccompFd?: number;
};

/** The folders of a system's programs. */
export const SYSTEM = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'];
/** The files of /etc that programs need. */
export const ETC = [
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
  canNest = false,
  statusFd,
  seccompFd,
}: BubblewrapOptions): string[] {
  const user =
    uid === null
      ? ['--unshare-user', '--uid', '65534', '--gid', '65534', '--cap-drop', 'ALL']
      : ['--cap-drop', 'ALL', '--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID'];
  const drop = uid === null ? [] : ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--inh-caps=-all'];
  // Under root, bubblewrap covers parts of /proc, and Linux lets nobody mount a new /proc where he does not see all of the present one.
  // There, a second bubblewrap mounts one as the sandbox's user.
  const isNested = canNest && uid !== null;
  const nested = [...passableParents(NESTED_BUBBLEWRAP), '--ro-bind', bwrap, NESTED_BUBBLEWRAP];
  const proc = isNested ? ['--dev-bind', '/proc', '/proc', ...nested] : ['--proc', '/proc'];
  return [
    bwrap,
    ...['--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try', '--hostname', 'sandbox'],
    ...(hostNetwork ? [] : ['--unshare-net']),
    ...['--die-with-parent', '--new-session', ...user],
    ...(statusFd === undefined ? [] : ['--json-status-fd', String(statusFd)]),
    ...(seccompFd === undefined ? [] : ['--seccomp', String(seccompFd)]),
    ...SYSTEM.filter(isLink).flatMap((path) => ['--symlink', readlinkSync(path), path]),
    ...['--dev', '/dev'],
    ...[...hostFiles(python), ...mounts].flatMap(({ host, inside, writable }) => [
      ...passableParents(inside),
      ...[writable ? '--bind' : '--ro-bind', host, inside],
    ]),
    ...proc,
    // `/` and `/dev` are in memory, and a sandbox could fill them. Only its own folders stay writable.
    ...['--remount-ro', '/', '--remount-ro', '/dev', '--chdir', cwd, '--', ...drop],
    ...(isNested ? NESTED : []),
  ];
}

const NESTED_BUBBLEWRAP = '/run/trialgate/bwrap';
const NESTED = [
  ...[NESTED_BUBBLEWRAP, '--unshare-user', '--unshare-pid', '--die-with-parent', '--cap-drop', 'ALL'],
  ...['--dev-bind', '/', '/', '--proc', '/proc', '--'],
];

/** Returns what every sandbox can read of this machine: its programs, some files of /etc, and Python's library. */
export function hostFiles(python: Python | null): Mount[] {
  const system = [...SYSTEM.filter((path) => !isLink(path)), ...ETC].filter((path) => existsSync(path));
  const prefix = python?.prefix ? [python.prefix] : [];
  return [...system, ...prefix].map((path) => ({ host: path, inside: path, writable: false }));
}

const isLink = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;

/** bubblewrap creates the folders above a mount for root only. The sandbox's user must be able to pass through them. */
function passableParents(path: string): string[] {
  const above = [];
  for (let folder = dirname(path); folder !== '/'; folder = dirname(folder))
    above.unshift('--perms', '0755', '--dir', folder);
  return above;
}
