import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** A process that cannot be mistaken for a later one with the same pid. `ticks` is its start time in /proc/pid/stat. */
export type ProcessId = { pid: number; ticks: number };

type Stat = { state: string; group: number; ticks: number };

function statOf(pid: number | string): Stat | null {
  try {
    // The command's name may have spaces and parentheses. The columns begin after the last `)`.
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const columns = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return { state: columns[0] ?? '', group: Number(columns[2]), ticks: Number(columns[19]) };
  } catch {
    return null;
  }
}

export const isDead = (stat: Stat | null): boolean => stat === null || stat.state === 'Z' || stat.state === 'X';

export function identify(pid: number): ProcessId {
  return { pid, ticks: statOf(pid)?.ticks ?? 0 };
}

export function isAlive({ pid, ticks }: ProcessId): boolean {
  const stat = statOf(pid);
  return !isDead(stat) && stat?.ticks === ticks;
}

/** Returns the living processes of the group that `leader` led, also when the leader itself is gone. */
export function groupOf(leader: ProcessId): number[] {
  const now = statOf(leader.pid);
  if (now && now.ticks !== leader.ticks) return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      const stat = statOf(name);
      return stat !== null && stat.group === leader.pid && stat.ticks >= leader.ticks && !isDead(stat);
    })
    .map(Number);
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
