import { directTarget, gatewayTarget, rotated, type Bench, type Cell, type Target } from '../cell.ts';
import { runStreams, type StreamsJob, type StreamsResult } from '../load/streams.ts';
import { compared, measured, type Figures } from '../measure.ts';
import { FAULT_COLUMNS } from '../measure-wrk.ts';
import type { Column } from '../report.ts';
import { PROTOCOL_NAMES, type ProtocolName } from '../../../store/schema.ts';

export const TOKENS = 64;
export const STREAMS = 1300;
const PACE_MS = 100;
const ROUNDS = 2;
const SPREAD_MS = 2000;
const WARM_UP = { streams: 32, tokens: TOKENS, spreadMs: 600, warmMs: 0, forMs: 2000 };

export const STREAM_COLUMNS: Column[] = [
  { key: 'begun', title: 'streams' },
  { key: 'open', title: 'at once' },
  { key: 'tokensPerSecond', title: 'tokens/s', spread: true },
  { key: 'delayP50Ms', title: 'delay p50 ms', digits: 2 },
  { key: 'delayP99Ms', title: 'p99', digits: 2 },
  { key: 'delayMaxMs', title: 'max', digits: 1 },
  { key: 'firstP50Ms', title: 'first p50 ms', digits: 1 },
  { key: 'firstP99Ms', title: 'first p99', digits: 1 },
  { key: 'ownCores', title: 'own cores', digits: 2 },
  { key: 'postgresCores', title: 'postgres', digits: 2 },
  { key: 'engineCores', title: 'engine', digits: 2 },
  { key: 'loadCores', title: 'load', digits: 2 },
  { key: 'otherCores', title: 'others', digits: 2 },
  { key: 'peakMiB', title: 'peak MiB' },
  { key: 'timeouts', title: 'timeouts', sum: true },
  ...FAULT_COLUMNS,
];

/** Runs every stream to its end. What the client saw, what the engine sent and what is recorded must be equal. */
export const paced: Cell = {
  name: 'paced',
  about: `${STREAMS} streams at once of ${TOKENS} tokens, one each ${PACE_MS} ms, ${ROUNDS} rounds; delay: from the engine's write of a token to the client`,
  async run(bench) {
    for (const protocol of PROTOCOL_NAMES) await inProtocol(bench, protocol);
    bench.report.summarize(paced.name, paced.about, STREAM_COLUMNS);
  },
};

/** Measures in a fresh gateway process, because the memory of another protocol's load would remain. */
async function inProtocol(bench: Bench, protocol: ProtocolName): Promise<void> {
  await using gateway = await bench.startGateway();
  const targets = [directTarget(bench.engine), gatewayTarget(gateway)];
  const inProtocols = (target: Target) => (target.direct ? 'chat_completions' : protocol);
  for (const target of targets) await warmUp(bench, target, inProtocols(target));
  for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
    for (const target of rotated(targets, repeat)) {
      const figures = await pacedStreams(bench, target, inProtocols(target));
      bench.report.add({ cell: paced.name, case: protocol, target: target.name, repeat, figures }, [
        'begun',
        'tokensPerSecond',
        'delayP99Ms',
        'peakMiB',
        'errors',
        'lost',
      ]);
    }
  }
}

export async function warmUp(bench: Bench, target: Target, protocol: ProtocolName): Promise<void> {
  await bench.engine.set({ tokens: TOKENS, paceMs: 10 });
  await timedStreams(bench, target, { ...WARM_UP, protocol });
}

/** Runs the streams of the cell to a target that is warm. */
export async function pacedStreams(
  bench: Bench,
  target: Target,
  protocol: ProtocolName,
  streams = STREAMS,
): Promise<Figures> {
  await bench.engine.set({ tokens: TOKENS, paceMs: PACE_MS });
  const times = { spreadMs: SPREAD_MS, warmMs: SPREAD_MS, forMs: ROUNDS * TOKENS * PACE_MS };
  return timedStreams(bench, target, { streams, tokens: TOKENS, ...times, rounds: ROUNDS, protocol });
}

/** Runs streams to one target. Each lane has its own trials. */
export async function timedStreams(
  bench: Bench,
  target: Target,
  job: Omit<StreamsJob, 'url' | 'lines' | 'direct'>,
  trialsALane = 2,
): Promise<Figures> {
  const { url, direct } = target;
  const lines = await target.lines(job.streams * trialsALane);
  const reasons: string[] = [];
  const figures = await measured(bench, target, async () => {
    const result = await runStreams({ ...job, url, lines, direct }, bench.signal);
    reasons.push(...result.reasons);
    return ofStreams(result);
  });
  if (reasons.length > 0) bench.report.print(`  ${target.name}: ${reasons.join(', ')}`);
  return compared(figures, figures.complete ?? 0);
}

function ofStreams({
  delayMs,
  firstMs,
  begun,
  complete,
  incomplete,
  refused,
  timeouts,
  broken,
  open,
  tokensPerSecond,
}: StreamsResult): Figures {
  return {
    ...{ begun, complete, incomplete, refused, timeouts, broken, open, tokensPerSecond },
    errors: incomplete + refused + timeouts + broken,
    ...{ delayP50Ms: delayMs.p50, delayP99Ms: delayMs.p99, delayMaxMs: delayMs.max },
    ...{ firsts: firstMs.count, firstP50Ms: firstMs.p50, firstP99Ms: firstMs.p99, firstMaxMs: firstMs.max },
  };
}
