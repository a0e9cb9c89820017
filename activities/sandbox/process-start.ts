import { readFileSync } from 'node:fs';

/** Returns the kernel's start time of a process, or null when there is no such process. The start time tells two processes with the same id apart. */
export function startOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null;
  } catch {
    return null;
  }
}

/** Returns true when the process with this id and start time runs. */
export const isRunning = (pid: number, started: string): boolean => startOf(pid) === started;
