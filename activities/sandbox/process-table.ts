import { readFileSync, statSync } from 'node:fs';
import { isDead, listPids, readProcessStat } from '../../core/process-stat.ts';

export type ProcessRow = { pid: number; parent: number; uid: number; threads: number; rssBytes: number };

const PAGE = 4096;

/** Returns every process of the host, from /proc; empty where there is none. It is synchronous, because 300 processes take a few milliseconds. */
export function processTable(): ProcessRow[] {
  return listPids().flatMap((pid) => {
    const stat = readProcessStat(pid);
    const uid = userOf(pid);
    return stat === null || uid === null
      ? []
      : [{ pid, uid, parent: stat.parent, threads: stat.threads, rssBytes: stat.residentPages * PAGE }];
  });
}

/** Returns `root`, its descendants, and every process of `uid`. */
export function treeOf(rows: ProcessRow[], root: number, uid: number | null): ProcessRow[] {
  const children = Map.groupBy(rows, (row) => row.parent);
  const tree = new Map(rows.filter((row) => row.pid === root || row.uid === uid).map((row) => [row.pid, row]));
  for (const row of tree.values()) for (const child of children.get(row.pid) ?? []) tree.set(child.pid, child);
  return [...tree.values()];
}

/** Returns true when the user has a process. */
export function userHasProcesses(uid: number): boolean {
  return listPids().some((pid) => userOf(pid) === uid && !isDead(readProcessStat(pid)));
}

/** Returns the kernel's start time of a process, or null when there is no such process. The start time tells two processes with the same id apart. */
export function startOf(pid: number): string | null {
  const stat = readProcessStat(pid);
  return stat && String(stat.startTicks);
}

/** Returns true when the process with this id and start time runs. */
export const isRunning = (pid: number, started: string): boolean => startOf(pid) === started;

/** Returns the processes whose environment has the exact entry `name=value`. */
export function processesWith(entry: string): number[] {
  return listPids().filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(entry);
    } catch {
      return false;
    }
  });
}

function userOf(pid: number): number | null {
  try {
    return statSync(`/proc/${pid}`).uid;
  } catch {
    return null;
  }
}
