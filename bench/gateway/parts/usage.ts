import { readFileSync, writeFileSync } from 'node:fs';
import { listPids, readProcessStat, statColumns } from '../../../core/process-stat.ts';

const TICKS_A_SECOND = 100;

/** Returns a process and its descendants. */
export function treeOf(root: number): number[] {
  const children = new Map<number, number[]>();
  for (const pid of listPids()) {
    const parent = readProcessStat(pid)?.parent;
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), pid]);
  }
  const found = [root];
  for (const pid of found) found.push(...(children.get(pid) ?? []));
  return found;
}

/** Returns the seconds of processor time of these processes and of their children that have ended. */
export function cpuSeconds(pids: readonly number[]): number {
  let ticks = 0;
  for (const pid of pids) for (const column of statColumns(pid)?.slice(11, 15) ?? []) ticks += Number(column);
  return ticks / TICKS_A_SECOND;
}

/** Returns the seconds of processor time that the machine has spent on anything so far. */
export function busySeconds(): number {
  const [, user, nice, system, , , irq, softirq, steal] =
    readFileSync('/proc/stat', 'latin1').split('\n')[0]?.split(/\s+/).map(Number) ?? [];
  return (
    [user, nice, system, irq, softirq, steal].reduce<number>((sum, ticks) => sum + (ticks ?? 0), 0) / TICKS_A_SECOND
  );
}

/** Returns the sum of each process's peak of resident memory since `resetPeaks`, in MiB. */
export function peakMiB(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + statusKiB(pid, 'VmHWM') / 1024, 0);
}

export const residentMiB = (pid: number): number => statusKiB(pid, 'VmRSS') / 1024;

/** Resets the memory peaks of these processes to what is resident now. */
export function resetPeaks(pids: readonly number[]): void {
  for (const pid of pids) writeFileSync(`/proc/${pid}/clear_refs`, '5');
}

function statusKiB(pid: number, field: 'VmHWM' | 'VmRSS'): number {
  try {
    return Number(
      new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1] ?? 0,
    );
  } catch {
    return 0;
  }
}
