import { readdirSync, readFileSync } from 'node:fs';

/** The kernel's account of a process. `startTicks`, the time of its start, tells it apart from a later process with the same id. */
export type ProcessStat = {
  state: string;
  parent: number;
  group: number;
  threads: number;
  startTicks: number;
  residentPages: number;
};

/** Returns the columns of /proc/PID/stat from the state on, or null when there is no such process. */
export function statColumns(pid: number): string[] | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The command's name may have spaces and parentheses. The columns begin after the last `)`.
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return null;
  }
}

/** Returns null when there is no such process. */
export function readProcessStat(pid: number): ProcessStat | null {
  const columns = statColumns(pid);
  if (columns === null) return null;
  const at = (column: number): number => Number(columns[column]);
  return {
    state: columns[0] ?? '',
    parent: at(1),
    group: at(2),
    threads: at(17),
    startTicks: at(19),
    residentPages: at(21),
  };
}

/** Returns true when a process is gone, or is dead and its parent has not collected it yet. */
export const isDead = (stat: ProcessStat | null): boolean => stat === null || stat.state === 'Z' || stat.state === 'X';

/** Returns the ids of this host's processes. It is empty where there is no /proc. */
export function listPids(): number[] {
  try {
    return readdirSync('/proc')
      .map(Number)
      .filter((pid) => pid > 0);
  } catch {
    return [];
  }
}
