import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDead, readProcessStat } from '../../core/process-stat.ts';
import type { Isolation } from './isolation.ts';
import { processesWith, processTable, treeOf, userHasProcesses } from './process-table.ts';

/** An environment variable that every process of a sandbox has and passes on to its children. */
export const MARKER = 'TRIALGATE_SANDBOX';

export type Tree = {
  /** The leader of the process group. */
  pid: number;
  /** The sandbox's own user. */
  uid: number | null;
  /** The marker's value. */
  marker: string;
  /** True when the process has a pid namespace, whose end ends every process in it. */
  namespaced: boolean;
};

/** Kills a process, its group, its descendants, and processes that left the group. Returns when none is left. */
export async function killTree({ pid, uid, marker, namespaced }: Tree): Promise<void> {
  // bubblewrap's child leaves its group a moment before it is bound to its parent's life.
  const descendants = namespaced
    ? childrenOf(pid)
    : uid !== null
      ? []
      : treeOf(processTable(), pid, null).map((row) => row.pid);
  kill(-pid);
  descendants.forEach((one) => kill(one));
  if (!namespaced) await killMarked(uid, marker);
}

/** Returns the processes that the main thread of a process has started, none when it is dead. */
function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

/** After bubblewrap has ended, waits until the first process of its pid namespace is dead, and with it every other one. */
export async function namespaceGone(bubblewrapStatus: string): Promise<void> {
  const first = /"child-pid":\s*(\d+)/.exec(bubblewrapStatus)?.[1];
  if (first) await gone(() => isDead(readProcessStat(Number(first))));
}

type Stop = () => Promise<void>;
const running = new Map<string, Set<Stop>>();

/** Stores how to end a process of this worker, so that its sandbox can be ended from elsewhere. */
export function noteRunning(marker: string, stop: Stop): () => void {
  const stops = running.get(marker) ?? new Set();
  running.set(marker, stops.add(stop));
  return () => {
    stops.delete(stop);
    if (stops.size === 0) running.delete(marker);
  };
}

/** Kills the processes that this worker runs in a sandbox, and those that a dead worker may have left there. */
export async function killSandbox(marker: string, uid: number | null, { kind }: Isolation): Promise<void> {
  await Promise.all([...(running.get(marker) ?? [])].map((stop) => stop()));
  // The death of a worker also ends its bubblewrap's processes.
  if (kind !== 'bubblewrap') await killMarked(kind === 'user' ? uid : null, marker);
}

/** Kills the processes that carry the marker, or all processes of the user if there is one. Returns when none is left. */
export async function killMarked(uid: number | null, marker: string): Promise<void> {
  if (uid !== null) return killUser(uid);
  // One search may miss a process: it was started after /proc was listed, by one that died before its turn, or it was in the middle of
  // an exec, where Linux shows no environment. So three searches in a row must find none.
  let empty = 0;
  for (let round = 0; round < 50; round += 1) {
    const left = processesWith(`${MARKER}=${marker}`);
    empty = left.length === 0 ? empty + 1 : 0;
    if (empty === 3) return;
    // Processes are stopped first, so that none starts another one during the search.
    if (round < 5) left.forEach((pid) => kill(pid, 'SIGSTOP'));
    if (round >= 2) left.forEach((pid) => kill(pid));
    await sleep(2);
  }
}

/** Kills all processes of the user. `kill -1` as that user is atomic, so a process cannot escape by forking. */
async function killUser(uid: number): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const killer = spawn('/bin/sh', ['-c', 'kill -KILL -1'], { uid, gid: uid, stdio: 'ignore', env: {} });
  await once(killer, 'exit').catch(() => null);
  await gone(() => !userHasProcesses(uid));
}

/** Waits until none is left: a killed process exists for a few more moments. */
async function gone(isGone: () => boolean): Promise<void> {
  for (let round = 0; round < 200 && !isGone(); round += 1) await sleep(2);
}

function kill(pid: number, signal: NodeJS.Signals = 'SIGKILL'): void {
  if (Math.abs(pid) <= 1) return; // Would be our own group, or everyone.
  try {
    process.kill(pid, signal);
  } catch {
    // The process is gone already.
  }
}
