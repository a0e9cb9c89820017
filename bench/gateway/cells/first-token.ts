import { rotated, protocolTargets, type Bench, type Cell, type ProtocolTarget } from '../cell.ts';
import type { Figures } from '../measure.ts';
import { FAULT_COLUMNS } from '../measure-wrk.ts';
import type { Column } from '../report.ts';
import { STREAM_COLUMNS, timedStreams, TOKENS } from './paced.ts';
import { PROTOCOL_NAMES } from '../../../store/schema.ts';

const STREAMS = 64;
const PACE_MS = 20;
const LENGTH_MS = TOKENS * PACE_MS;
const FAULTS = new Set(['timeouts', ...FAULT_COLUMNS.map(({ key }) => key)]);

const COLUMNS: Column[] = [
  { key: 'firsts', title: 'first tokens' },
  { key: 'firstP50Ms', title: 'p50 ms', digits: 2 },
  { key: 'firstP99Ms', title: 'p99 ms', digits: 2, spread: true },
  { key: 'firstMaxMs', title: 'max', digits: 1 },
  ...STREAM_COLUMNS.filter(({ key }) => key.endsWith('Cores') || key === 'tokensPerSecond' || FAULTS.has(key)),
];

export const firstToken: Cell = {
  name: 'first-token',
  about: `time to the first token at ${STREAMS} streams (a token each ${PACE_MS} ms), less what the engine itself took for that call`,
  async run(bench) {
    await using gateway = await bench.startGateway();
    const inProtocols = protocolTargets(bench, gateway, PROTOCOL_NAMES);
    for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
      for (const each of rotated(inProtocols, repeat)) {
        const figures = await firstTokens(bench, each, bench.options.seconds);
        const { target } = each;
        bench.report.add({ cell: firstToken.name, case: '', target: target.name, repeat, figures }, [
          'firsts',
          'firstP50Ms',
          'firstP99Ms',
          'errors',
          'lost',
        ]);
      }
    }
    bench.report.summarize(firstToken.name, firstToken.about, COLUMNS);
  },
};

/** Runs the streams of the cell to a target. They warm it first. */
export async function firstTokens(
  bench: Bench,
  { target, protocol }: ProtocolTarget,
  seconds: number,
): Promise<Figures> {
  await bench.engine.set({ tokens: TOKENS, paceMs: PACE_MS });
  const times = { spreadMs: LENGTH_MS, warmMs: 2 * LENGTH_MS, forMs: 2 * LENGTH_MS + 2000 * seconds };
  return timedStreams(bench, target, { streams: STREAMS, tokens: TOKENS, ...times, protocol });
}
