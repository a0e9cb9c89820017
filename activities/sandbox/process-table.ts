import { readFileSync, readdirSync, statSync } from 'node:fs';

export type ProcessRow = { pid: number; parent: number; uid: number; threads: number; rssBytes: number };

const PAGE = 4096;

/** Returns every process of the host, from /proc; empty where there is none. It is synchronous, because 300 processes take a few milliseconds. */
export function processTable(): ProcessRow[] {
  const rows: ProcessRow[] = [];
  for (const pid of pids()) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const [parent, threads, pages] = [fields[1], fields[17], fields[21]].map(Number);
      rows.push({
        pid,
        parent: parent ?? 0,
        uid: statSync(`/proc/${pid}`).uid,
        threads: threads ?? 1,
        rssBytes: (pages ?? 0) * PAGE,
      });
    } catch {
      continue;
    }
  }
  return rows;
}

/** Returns `root`, its descendants, and every process of `uid`. */
export function treeOf(rows: ProcessRow[], root: number, uid: number | null): ProcessRow[] {
  const children = Map.groupBy(rows, (row) => row.parent);
  const tree = new Map(rows.filter((row) => row.pid === root || row.uid === uid).map((row) => [row.pid, row]));
  for (const row of tree.values()) for (const child of children.get(row.pid) ?? []) tree.set(child.pid, child);
  return [...tree.values()];
}

/** Returns true when a process is gone, or is dead and its parent has not collected it yet. */
export function isDead(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return 'ZX'.includes(stat.charAt(stat.lastIndexOf(')') + 2));
  } catch {
    return true;
  }
}

/** Returns true when the user has a process. */
export function userHasProcesses(uid: number): boolean {
  return pids().some((pid) => statSync(`/proc/${pid}`, { throwIfNoEntry: false })?.uid === uid && !isDead(pid));
}

/** Returns the processes whose environment has the exact entry `name=value`. */
export function processesWith(entry: string): number[] {
  return pids().filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(entry);
    } catch {
      return false;
    }
  });
}

function pids(): number[] {
  try {
    return readdirSync('/proc')
      .map(Number)
      .filter((pid) => pid > 0);
  } catch {
    return [];
  }
}
