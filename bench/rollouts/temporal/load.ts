import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { busySeconds, cpuSeconds, treeOf } from '../../gateway/parts/usage.ts';

export type Load = {
  wall: number;
  /** Cores in use, by process. `worker` is this process, which runs workflows and activities. */
  temporal: number;
  postgres: number;
  worker: number;
  others: number;
  /** The share of time in which the worker's event loop was busy. */
  loop: number;
};

type Reading = {
  wall: number;
  temporal: number;
  postgres: number;
  worker: number;
  all: number;
  loop: ReturnType<typeof performance.eventLoopUtilization>;
};

/** Returns a function that returns the load since its last call. */
export function loadMeter(): () => Load {
  let before = readLoad();
  return () => {
    const after = readLoad();
    const wall = after.wall - before.wall;
    const [temporal, postgres, worker, all] = (['temporal', 'postgres', 'worker', 'all'] as const).map(
      (key) => (after[key] - before[key]) / wall,
    ) as [number, number, number, number];
    const load = {
      wall,
      temporal,
      postgres,
      worker,
      others: Math.max(0, all - temporal - postgres - worker),
      loop: performance.eventLoopUtilization(after.loop, before.loop).utilization,
    };
    before = after;
    return load;
  };
}

function readLoad(): Reading {
  const tree = treeOf(process.pid);
  const named = (name: string) =>
    cpuSeconds(tree.filter((pid) => pid !== process.pid && commandOf(pid).startsWith(name)));
  const { user, system } = process.cpuUsage();
  return {
    wall: performance.now() / 1000,
    temporal: named('temporal'),
    postgres: named('postgres'),
    worker: (user + system) / 1e6,
    all: busySeconds(),
    loop: performance.eventLoopUtilization(),
  };
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return '';
  }
}
