import type { Bench, Target } from './cell.ts';
import { busySeconds, cpuSeconds, peakMiB, resetPeaks, treeOf } from './parts/usage.ts';
import { profileClock } from './profile.ts';
import { sleep } from '../../core/sleep.ts';

export type Figures = Partial<Record<string, number>>;

/** Runs `load` and returns its cost: the cores of each part (of the target's process and its children) and the peak of memory. */
export async function measured(bench: Bench, target: Target, load: () => Promise<Figures>): Promise<Figures> {
  const own = target.pid === null ? [] : [target.pid, ...(target.more ?? []).map(({ pid }) => pid)].flatMap(treeOf);
  const pids = { own, engine: treeOf(bench.engine.pid), load: [process.pid] };
  const read = () => ({
    at: performance.now(),
    own: cpuSeconds(pids.own),
    // PostgreSQL starts and ends a process for each connection, so the whole tree counts.
    postgres: cpuSeconds(treeOf(bench.postgres.pid)),
    engine: cpuSeconds(pids.engine),
    load: cpuSeconds(pids.load),
    all: busySeconds(),
  });
  resetPeaks(own);
  const counts = await bench.engine.counts();
  const rows = await target.gateway?.recorded();
  const before = read();
  const from = profileClock();
  const figures = await load();
  bench.windows.push({ from, to: profileClock() });
  const after = read();
  const wall = (after.at - before.at) / 1000;
  const cores = (part: 'own' | 'postgres' | 'engine' | 'load' | 'all') => (after[part] - before[part]) / wall;
  const ownCores = cores('own');
  const used = { postgresCores: cores('postgres'), engineCores: cores('engine'), loadCores: cores('load') };
  const otherCores = cores('all') - ownCores - used.postgresCores - used.engineCores - used.loadCores;
  const ownUse = target.pid === null ? {} : { ownCores, peakMiB: peakMiB(own) };
  await settled(target, bench.signal);
  const now = await target.gateway?.recorded();
  const served = (await bench.engine.counts()).served - counts.served;
  const recorded =
    rows && now
      ? {
          completed: now.completed - rows.completed,
          failed: now.failed - rows.failed,
          cancelled: now.cancelled - rows.cancelled,
          clean: now.clean - rows.clean,
          untrainable: now.untrainable - rows.untrainable,
        }
      : {};
  if (recorded.failed)
    bench.report.print(
      `  ${recorded.failed} calls are recorded as failed; the gateway's log ends: ${target.gateway?.tail()}`,
    );
  return { ...figures, wall, ...used, otherCores: Math.max(0, otherCores), served, ...ownUse, ...recorded };
}

/** Waits until no call is under way, because calls whose client was cut off at the end are recorded too. */
export async function settled({ gateway }: Pick<Target, 'gateway'>, signal: AbortSignal): Promise<void> {
  if (!gateway) return;
  const isIdle = async ({ url }: { url: string }) =>
    /^trialgate_calls_in_flight 0$/m.test(await (await fetch(`${url}/metrics`, { signal })).text());
  for (let tries = 0; tries < 200; tries++) {
    if ((await Promise.all([gateway, ...gateway.more].map(isIdle))).every(Boolean)) return;
    await sleep(50, signal);
  }
  throw new Error('calls are still under way after 10 s without a client');
}

/**
 * Compares the replies that a client received with the calls recorded as completed. `lost` were received but not recorded and must be 0.
 * `unseen` were recorded but the client was cut off before; there is at most one a connection.
 */
export function compared(figures: Figures, seen: number): Figures {
  const { completed } = figures;
  return completed === undefined
    ? figures
    : { ...figures, lost: Math.max(0, seen - completed), unseen: Math.max(0, completed - seen) };
}
