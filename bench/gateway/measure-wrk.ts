import type { Bench, Target } from './cell.ts';
import { runWrk, type WrkJob, type WrkResult } from './load/wrk.ts';
import { compared, measured, type Figures } from './measure.ts';
import type { Column } from './report.ts';

/** Columns for wrk's rate and times. */
export const RATE_COLUMNS: Column[] = [
  { key: 'perSecond', title: '/s', spread: true },
  { key: 'p50Ms', title: 'p50 ms', digits: 2 },
  { key: 'addedP50Ms', title: 'added p50', digits: 2, spread: true },
  { key: 'p99Ms', title: 'p99 ms', digits: 2 },
];

export const USE_COLUMNS: Column[] = [
  { key: 'ownMicros', title: 'own µs/call' },
  { key: 'postgresMicros', title: 'postgres' },
  { key: 'engineMicros', title: 'engine' },
  { key: 'loadMicros', title: 'load' },
  { key: 'ownCores', title: 'own cores', digits: 2 },
  { key: 'otherCores', title: 'others', digits: 2 },
  { key: 'peakMiB', title: 'peak MiB' },
];
export const FAULT_COLUMNS: Column[] = [
  { key: 'errors', title: 'errors', sum: true },
  { key: 'lost', title: 'lost', sum: true },
  { key: 'unseen', title: 'unseen', sum: true },
];

/** Runs wrk against a target once. Returns its times, each part's processor time for a call, and lost and unseen calls. */
export async function measureWrk(
  bench: Bench,
  target: Target,
  job: Omit<WrkJob, 'url' | 'headers' | 'direct' | 'signal'>,
): Promise<Figures> {
  const { headers, direct } = target;
  const urls = [target, ...(target.more ?? [])].map(({ url }) => url);
  const share = (all: number) => Math.ceil(all / urls.length);
  const lines = share(job.lines.length);
  const load = (url: string, i: number) =>
    runWrk(bench.wrk, {
      ...job,
      url,
      connections: share(job.connections),
      lines: job.lines.slice(i * lines, (i + 1) * lines),
      headers,
      direct,
      signal: bench.signal,
    });
  const figures = await measured(bench, target, async () => together((await Promise.all(urls.map(load))).map(ofWrk)));
  return perCall(compared(figures, figures.seen ?? 0));
}

/** Combines runs side by side: sums of counts, the mean of the medians, and the worst of the other times. */
function together(runs: Figures[]): Figures {
  const all = (key: string) => runs.map((run) => run[key] ?? 0);
  const sum = (key: string) => all(key).reduce((a, b) => a + b, 0);
  const [first = {}] = runs;
  if (runs.length === 1) return first;
  const means = Object.fromEntries(['meanMs', 'p50Ms'].map((key) => [key, sum(key) / runs.length]));
  const sums = Object.fromEntries(
    ['requests', 'seen', 'perSecond', 'errors', 'bytes', 'connect', 'read', 'write', 'status', 'timeout'].map((key) => [
      key,
      sum(key),
    ]),
  );
  return { ...Object.fromEntries(Object.keys(first).map((key) => [key, Math.max(...all(key))])), ...sums, ...means };
}

/** Returns wrk's figures. wrk counts every reply, also an error. */
function ofWrk(result: WrkResult): Figures {
  const { requests, seconds, connect, read, write, status, timeout } = result;
  const seen = requests - status;
  return { ...result, seen, perSecond: seen / seconds, errors: connect + read + write + status + timeout };
}

/** Returns the microseconds of processor time of each part for a call. */
function perCall(figures: Figures): Figures {
  const { wall = 0, seen = 0, ownCores, postgresCores, engineCores, loadCores } = figures;
  const micros = (cores: number | undefined) =>
    seen > 0 && cores !== undefined ? (cores * wall * 1e6) / seen : undefined;
  return {
    ...figures,
    ownMicros: micros(ownCores),
    postgresMicros: micros(postgresCores),
    engineMicros: micros(engineCores),
    loadMicros: micros(loadCores),
  };
}

/** Returns one repeat's figures by target. Each but the baseline also has the difference from the baseline. */
export function withAdded(found: ReadonlyMap<string, Figures>): [string, Figures][] {
  const { p50Ms: p50 = 0, meanMs: mean = 0 } = found.get('direct') ?? {};
  return [...found].map(([target, figures]) => {
    const added =
      target === 'direct' ? {} : { addedP50Ms: (figures.p50Ms ?? 0) - p50, addedMeanMs: (figures.meanMs ?? 0) - mean };
    return [target, { ...figures, ...added }];
  });
}
