import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { isIP } from 'node:net';
import { endianness } from 'node:os';
import { basename } from 'node:path';
import { lockSocket } from '../../core/lock.ts';
import { listPids } from '../../core/process-stat.ts';

/**
 * Returns the process that listens on a TCP port at this host or at all hosts, as "node (process 1234)"; null if /proc does not tell, as of
 * other users' processes.
 */
export function portOwner(port: number, host: string): string | null {
  const at = addressOf(host);
  const takes = (address: string): boolean => ANY.test(address) || at === null || ANY.test(at) || address === at;
  const ofTable = (table: string): string[] =>
    rowsOf(table).flatMap(([, local = '', , state, , , , , , inode = '']) => {
      const [address = '', number = ''] = local.split(':');
      return state === LISTEN && Number.parseInt(number, 16) === port && takes(address) ? [inode] : [];
    });
  return ownerOf([...ofTable('tcp'), ...ofTable('tcp6')]);
}

/** Returns the process that has a lock (`core/lock.ts`), in the same form; null if none has it. */
export function lockOwner(folder: string, purpose: string): string | null {
  const name = `@${lockSocket(folder, purpose)}`;
  return ownerOf(
    rowsOf('unix').flatMap(([, , , , , , inode = '', path]) => (path?.replace(/@+$/, '') === name ? [inode] : [])),
  );
}

const LISTEN = '0A';
/** An address that stands for all addresses of the machine. */
const ANY = /^0+$/;

/** Returns an IPv4 address as the kernel's tables have it; null for a name and for IPv6. */
function addressOf(host: string): string | null {
  if (isIP(host) !== 4) return null;
  const bytes = host.split('.').map((byte) => Number(byte).toString(16).padStart(2, '0'));
  return (endianness() === 'LE' ? bytes.toReversed() : bytes).join('').toUpperCase();
}

/** Returns the rows of a table of the kernel's sockets, without its header. */
const rowsOf = (table: string): string[][] =>
  orElse('', () => readFileSync(`/proc/net/${table}`, 'latin1'))
    .split('\n')
    .slice(1)
    .map((row) => row.trim().split(/\s+/));

/** Returns the process that holds one of these sockets, which /proc/PID/fd names by their numbers. */
function ownerOf(inodes: readonly string[]): string | null {
  const sockets = new Set(inodes.map((inode) => `socket:[${inode}]`));
  const pid = sockets.size === 0 ? undefined : listPids().find((each) => holdsOne(each, sockets));
  return pid === undefined ? null : `${programOf(pid)} (process ${pid})`;
}

const holdsOne = (pid: number, sockets: ReadonlySet<string>): boolean =>
  orElse([], () => readdirSync(`/proc/${pid}/fd`)).some((fd) =>
    sockets.has(orElse('', () => readlinkSync(`/proc/${pid}/fd/${fd}`))),
  );

/** The name of its file says more than that of its main thread, which a program can change. */
const programOf = (pid: number): string =>
  basename(orElse('a program', () => readlinkSync(`/proc/${pid}/exe`))).replace(/ \(deleted\)$/, '');

/** A process may end while it is looked at, and that of another user cannot be read. */
function orElse<T>(otherwise: T, read: () => T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}
