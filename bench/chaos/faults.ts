import { setTimeout as sleep } from 'node:timers/promises';
import { groupOf, isAlive, send, type ProcessId } from '../../cli/supervisor/processes.ts';
import type { Random } from '../../tests/support/scenarios/fuzz/random.ts';
import { COMPONENTS, DISK_NAMES, LINKS, type ChaosDeployment, type DiskName, type LinkName } from './deployment.ts';
import { familyOf } from './processes.ts';

type Process = (typeof COMPONENTS)[number] | 'supervisor';
export type Fault =
  { kind: 'kill' | 'stop'; at: Process } | { kind: 'full disk'; at: DiskName } | { kind: 'cut'; at: LinkName };
/** A fault that happened. Times are milliseconds since 1970. */
export type FaultTimes = { fault: string; began: number; ended: number };

/** Longer than the 20 s without a heartbeat after which an activity is given up. */
const STOP_MS = [21_000, 26_000] as const;
const FULL_MS = [3_000, 10_000] as const;
const CUT_MS = [0, 8_000] as const;

const TOGETHER = ' + ';
export const namesOf = (faults: readonly Fault[]): string => faults.map(nameOf).join(TOGETHER);

export const nameOf = ({ kind, at }: Fault): string => `${kind} ${at}`;

export function faultsOf({ disks }: { disks: unknown }): Fault[] {
  const processes: Process[] = [...COMPONENTS, 'supervisor'];
  return [
    ...processes.flatMap((at): Fault[] => [
      { kind: 'kill', at },
      { kind: 'stop', at },
    ]),
    ...(disks ? DISK_NAMES : []).map((at): Fault => ({ kind: 'full disk', at })),
    ...LINKS.map((at): Fault => ({ kind: 'cut', at })),
  ];
}

/** Deals all faults in random order, again and again, so that each comes as often as any other. */
function* deal(faults: readonly Fault[], random: Random): Generator<Fault, never> {
  for (;;) {
    const deck = [...faults];
    while (deck.length > 0) yield* deck.splice(random.below(deck.length), 1);
  }
}

/** Deals faults of which one in four comes with a second one. */
export function* dealTogether(faults: readonly Fault[], random: Random): Generator<Fault[], never> {
  const dealt = deal(faults, random);
  for (;;) yield Array.from({ length: random.chance(0.25) ? 2 : 1 }, () => dealt.next().value);
}

export async function causeFaults(
  deployment: ChaosDeployment,
  faults: readonly Fault[],
  random: Random,
  signal: AbortSignal,
): Promise<FaultTimes> {
  const struck = await Promise.all(faults.map((fault) => causeFault(deployment, fault, random, signal)));
  return {
    fault: namesOf(faults),
    began: Math.min(...struck.map(({ began }) => began)),
    ended: Math.max(...struck.map(({ ended }) => ended)),
  };
}

/** Causes a fault and returns when it is over: the process goes on, the disk has room, the link works. The supervisor restarts killed processes. */
async function causeFault(
  deployment: ChaosDeployment,
  fault: Fault,
  random: Random,
  signal: AbortSignal,
): Promise<FaultTimes> {
  const between = ([least, most]: readonly [number, number]): number => least + random.below(most - least);
  const leader = fault.kind === 'kill' || fault.kind === 'stop' ? await leaderOf(deployment, fault.at, signal) : null;
  const began = Date.now();
  switch (fault.kind) {
    case 'kill':
      // Processes that it started in other groups, such as agents, stay.
      if (leader) for (const each of fault.at === 'supervisor' ? [leader.pid] : groupOf(leader)) send(each, 'SIGKILL');
      // Only a person restarts the supervisor.
      if (leader && fault.at === 'supervisor') {
        while (isAlive(leader)) await sleep(10);
        await deployment.up(signal);
      }
      return { fault: nameOf(fault), began, ended: began };
    case 'stop':
      await stopFor(leader, fault.at === 'supervisor', between(STOP_MS), signal);
      break;
    case 'full disk':
      await deployment.disks?.[fault.at].fullFor(between(FULL_MS), signal);
      break;
    case 'cut': {
      const link = deployment.links[fault.at];
      link.cut();
      await sleep(between(CUT_MS), undefined, { signal }).finally(() => link.restore());
    }
  }
  return { fault: nameOf(fault), began, ended: Date.now() };
}

async function stopFor(leader: ProcessId | null, alone: boolean, ms: number, signal: AbortSignal): Promise<void> {
  if (!leader) return;
  const family = alone ? [leader.pid] : familyOf(leader.pid);
  for (const each of family) send(each, 'SIGSTOP');
  await sleep(ms, undefined, { signal }).finally(() => {
    for (const each of family) send(each, 'SIGCONT');
  });
}

async function leaderOf(deployment: ChaosDeployment, at: Process, signal: AbortSignal): Promise<ProcessId | null> {
  return at === 'supervisor' ? deployment.supervisor : deployment.serving(at, signal);
}
