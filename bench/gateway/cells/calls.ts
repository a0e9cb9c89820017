import { directTarget, gatewayTarget, rotated, type Bench, type Cell, type Target } from '../cell.ts';
import type { Figures } from '../measure.ts';
import { FAULT_COLUMNS, measureWrk, USE_COLUMNS, withAdded } from '../measure-wrk.ts';
import { startForwarder } from '../parts/forwarder.ts';
import { measureSync } from '../parts/fsync.ts';
import type { Column } from '../report.ts';

export const TOKENS = 64;
export const CONCURRENCIES = [1, 32];
/** Long enough for V8 to have compiled the code of a long-lived process. */
const WARM_SECONDS = 4;
const WARM_CONNECTIONS = 32;
const SYNC_SECONDS = 0.5;
/** New trials a second, so that each gets only a few calls, as an agent makes. */
const TRIALS_A_SECOND = { alone: 250, together: 800 };

const COLUMNS: Column[] = [
  { key: 'perSecond', title: '/s', spread: true },
  { key: 'p50Ms', title: 'p50 ms', digits: 2 },
  { key: 'addedP50Ms', title: 'added p50', digits: 2, spread: true },
  { key: 'beyondSyncMs', title: 'less a sync', digits: 2 },
  { key: 'p99Ms', title: 'p99 ms', digits: 2 },
  ...USE_COLUMNS,
  ...FAULT_COLUMNS,
];

export const calls: Cell = {
  name: 'calls',
  about: `whole replies of ${TOKENS} tokens with log-probabilities, ordinary route; forwards only: the gateway's own libraries (Hono, undici), which hand replies on`,
  run: (bench) => compare(bench, calls, false),
};
export const streams: Cell = {
  name: 'streams',
  about: `the same as streams, which the engine sends in one write; forwards only: as in calls`,
  run: (bench) => compare(bench, streams, true),
};

async function compare(bench: Bench, cell: Cell, stream: boolean): Promise<void> {
  await bench.engine.set({ tokens: TOKENS, paceMs: 0 });
  await using stack = new AsyncDisposableStack();
  const forwarder = stack.use(await startForwarder(bench.engine.url, bench.signal));
  const peers = (await bench.startPeers(stream)).map((peer) => stack.use(peer));
  for (const connections of CONCURRENCIES) {
    await using gateway = await bench.startGateway();
    const targets = [directTarget(bench.engine), gatewayTarget(gateway), forwarder, ...peers];
    for (const target of targets)
      await once(bench, target, { connections: WARM_CONNECTIONS, stream, seconds: WARM_SECONDS });
    for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
      const syncMs = connections === 1 ? measureSync(bench.postgres.data, SYNC_SECONDS).medianMs : 0;
      const found = new Map<string, Figures>();
      for (const target of rotated(targets, repeat))
        found.set(target.name, await once(bench, target, { connections, stream, seconds: bench.options.seconds }));
      for (const [target, figures] of withAdded(found)) {
        const beyond =
          target === 'trialgate' && connections === 1
            ? { syncMs, beyondSyncMs: (figures.addedP50Ms ?? 0) - syncMs }
            : {};
        bench.report.add(
          { cell: cell.name, case: `c=${connections}`, target, repeat, figures: { ...figures, ...beyond } },
          ['perSecond', 'p50Ms', 'p99Ms', 'errors', 'lost'],
        );
      }
    }
  }
  bench.report.summarize(cell.name, cell.about, COLUMNS);
}

export type Shape = { connections: number; stream: boolean; seconds: number };

/** Runs load of new trials against a target once. */
export async function once(bench: Bench, target: Target, { connections, stream, seconds }: Shape): Promise<Figures> {
  const lines = await target.lines(Math.ceil(seconds * TRIALS_A_SECOND[connections === 1 ? 'alone' : 'together']));
  return measureWrk(bench, target, { lines, connections, seconds, stream });
}
