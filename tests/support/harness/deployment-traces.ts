import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { listPids } from '../../../core/process-stat.ts';

/** Returns the processes whose arguments or variables name the folder: those of a deployment, and of its sandboxes. */
export const processesNaming = (folder: string): number[] =>
  listPids().filter((pid) => ['cmdline', 'environ'].some((file) => readProc(`${pid}/${file}`).includes(folder)));

/** Returns the sockets on which processes of this machine listen: their ports or paths, by the inode that tells two of one port apart. */
export function listeningSockets(): Map<string, string> {
  const tcp = ['net/tcp', 'net/tcp6'].flatMap((table) =>
    rowsOf(table).flatMap(([, local = '', , state, , , , , , inode = '']): [string, string][] =>
      state === '0A' ? [[inode, String(Number.parseInt(local.split(':')[1] ?? '', 16))]] : [],
    ),
  );
  const unix = rowsOf('net/unix').flatMap(([, , , flags, , , inode = '', path = '']): [string, string][] =>
    flags === '00010000' ? [[inode, path]] : [],
  );
  return new Map([...tcp, ...unix]);
}

/** Returns those of the sockets that one of the processes has open. */
export function socketsOf(pids: readonly number[], sockets: ReadonlyMap<string, string>): Map<string, string> {
  const held = new Set(pids.flatMap(inodesOf));
  return new Map([...sockets].filter(([inode]) => held.has(inode)));
}

const rowsOf = (table: string): string[][] =>
  readProc(table)
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/));

function inodesOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      const inode = /^socket:\[(\d+)\]$/.exec(linkOf(`/proc/${pid}/fd/${fd}`))?.[1];
      return inode === undefined ? [] : [inode];
    });
  } catch {
    return [];
  }
}

/** Returns an empty text for a process or a file that has just gone. */
function readProc(file: string): string {
  try {
    return readFileSync(`/proc/${file}`, 'latin1');
  } catch {
    return '';
  }
}

function linkOf(file: string): string {
  try {
    return readlinkSync(file);
  } catch {
    return '';
  }
}
