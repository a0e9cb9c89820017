import { directTarget, gatewayTarget, rotated, type Bench, type Cell, type Target } from '../cell.ts';
import { runWrk, type WrkResult } from '../load/wrk.ts';
import { compared, measured, type Figures } from '../measure.ts';
import { measureSync } from '../parts/fsync.ts';
import type { Column } from '../report.ts';

const TOKENS = 64;
const CONCURRENCIES = [1, 32];
/** Enough for V8 to have compiled what a long-lived process runs. */
const WARM_SECONDS = 4;
const WARM_CONNECTIONS = 32;
const SYNC_SECONDS = 0.5;
/** A trial gets a handful of calls: an agent's do not run into the thousands. */
const TRIALS_A_SECOND = { alone: 250, together: 800 };

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
const COLUMNS: Column[] = [
  { key: 'perSecond', title: '/s', spread: true },
  { key: 'p50Ms', title: 'p50 ms', digits: 2 },
  { key: 'addedP50Ms', title: 'added p50', digits: 2, spread: true },
  { key: 'beyondSyncMs', title: 'less a sync', digits: 2 },
  { key: 'p99Ms', title: 'p99 ms', digits: 2 },
  ...USE_COLUMNS,
  ...FAULT_COLUMNS,
];

export const calls: Cell = { name: 'calls', about: `whole replies of ${TOKENS} tokens with log-probabilities, ordinary route`, run: (bench) => compare(bench, calls, false) };
export const streams: Cell = { name: 'streams', about: `the same as streams, which the engine sends in one write`, run: (bench) => compare(bench, streams, true) };

async function compare(bench: Bench, cell: Cell, stream: boolean): Promise<void> {
  await bench.engine.set({ tokens: TOKENS, paceMs: 0 });
  await using stack = new AsyncDisposableStack();
  const peers = (await bench.startPeers(stream)).map((peer) => stack.use(peer));
  for (const connections of CONCURRENCIES) {
    await using gateway = await bench.startGateway();
    const targets = [directTarget(bench.engine), gatewayTarget(gateway), ...peers];
    for (const target of targets) await once(bench, target, { connections: WARM_CONNECTIONS, stream, seconds: WARM_SECONDS });
    for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
      const syncMs = connections === 1 ? measureSync(bench.postgres.data, SYNC_SECONDS).medianMs : 0;
      const found = new Map<string, Figures>();
      for (const target of rotated(targets, repeat)) found.set(target.name, await once(bench, target, { connections, stream, seconds: bench.options.seconds }));
      for (const [target, figures] of withAdded(found)) {
        const beyond = target === 'trialgate' && connections === 1 ? { syncMs, beyondSyncMs: (figures.addedP50Ms ?? 0) - syncMs } : {};
        bench.report.add({ cell: cell.name, case: `c=${connections}`, target, repeat, figures: { ...figures, ...beyond } }, ['perSecond', 'p50Ms', 'p99Ms', 'errors', 'lost']);
      }
    }
  }
  bench.report.summarise(cell.name, cell.about, COLUMNS);
}

type Shape = { connections: number; stream: boolean; seconds: number };

async function once(bench: Bench, target: Target, { connections, stream, seconds }: Shape): Promise<Figures> {
  const { url, headers, direct } = target;
  const lines = await target.lines(Math.ceil(seconds * TRIALS_A_SECOND[connections === 1 ? 'alone' : 'together']));
  const figures = await measured(bench, target, async () => ofWrk(await runWrk(bench.wrk, { url, lines, connections, seconds, stream, direct, headers, signal: bench.signal })));
  return perCall(compared(figures, figures.seen ?? 0));
}

/** One repeat's figures by target: each but the baseline gets what it adds to that. */
export function withAdded(found: ReadonlyMap<string, Figures>): [string, Figures][] {
  const { p50Ms: p50 = 0, meanMs: mean = 0 } = found.get('direct') ?? {};
  return [...found].map(([target, figures]) => {
    const added = target === 'direct' ? {} : { addedP50Ms: (figures.p50Ms ?? 0) - p50, addedMeanMs: (figures.meanMs ?? 0) - mean };
    return [target, { ...figures, ...added }];
  });
}

/** wrk's figures, with its errors in one. It counts every reply, also one that is an error. */
export function ofWrk(result: WrkResult): Figures {
  const { requests, seconds, connect, read, write, status, timeout } = result;
  const seen = requests - status;
  return { ...result, seen, perSecond: seen / seconds, errors: connect + read + write + status + timeout };
}

/** Microseconds of processor time of each part for a call. */
export function perCall(figures: Figures): Figures {
  const { wall = 0, seen = 0 } = figures;
  const micros = (cores: number | undefined) => (seen > 0 && cores !== undefined ? (cores * wall * 1e6) / seen : undefined);
  const { ownCores, postgresCores, engineCores, loadCores } = figures;
  return { ...figures, ownMicros: micros(ownCores), postgresMicros: micros(postgresCores), engineMicros: micros(engineCores), loadMicros: micros(loadCores) };
}
