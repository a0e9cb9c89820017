import { setTimeout as sleep } from 'node:timers/promises';
import { isDead, listPids, readProcessStat } from '../../core/process-stat.ts';

/** A process that cannot be mistaken for a later one with the same pid. `ticks` is its start time in /proc/pid/stat. */
export type ProcessId = { pid: number; ticks: number };

export function identify(pid: number): ProcessId {
  return { pid, ticks: readProcessStat(pid)?.startTicks ?? 0 };
}

export function isAlive({ pid, ticks }: ProcessId): boolean {
  const stat = readProcessStat(pid);
  return !isDead(stat) && stat?.startTicks === ticks;
}

/** Returns the living processes of the group that `leader` led, also when the leader itself is gone. */
export function groupOf(leader: ProcessId): number[] {
  const now = readProcessStat(leader.pid);
  if (now && now.startTicks !== leader.ticks) return [];
  return listPids().filter((pid) => {
    const stat = readProcessStat(pid);
    return stat !== null && stat.group === leader.pid && stat.startTicks >= leader.ticks && !isDead(stat);
  });
}

/** Processes that outlive their leader get this long to clean up; Python frees shared memory then. */
const ORPHANS_MS = 3_000;

/** Ends the whole group: sends `signal` to its leader, and SIGKILL to all after `withinMs`. Returns when no process of it lives. */
export async function endGroup(leader: ProcessId, signal: NodeJS.Signals, withinMs: number): Promise<void> {
  // Pid 0 means that no process was started. To the kernel, 0 would be our own group.
  if (leader.pid === 0) return;
  if (isAlive(leader)) {
    send(leader.pid, signal);
    await until(() => !isAlive(leader), withinMs);
  }
  const isEmpty = (): boolean => groupOf(leader).length === 0;
  if (isEmpty()) return;
  if (!isAlive(leader)) {
    send(-leader.pid, 'SIGTERM');
    await until(isEmpty, ORPHANS_MS);
  }
  if (isEmpty()) return;
  send(-leader.pid, 'SIGKILL');
  await until(isEmpty, 10_000);
}

export function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}

async function until(condition: () => boolean, withinMs: number): Promise<void> {
  const end = Date.now() + withinMs;
  while (!condition() && Date.now() < end) await sleep(25);
}
