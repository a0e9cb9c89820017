import { directTarget, gatewayTarget, rotated, type Bench, type Cell, type Target } from '../cell.ts';
import type { Figures } from '../measure.ts';
import { FAULT_COLUMNS, measureWrk, withAdded } from '../measure-wrk.ts';
import type { Column } from '../report.ts';

const TOKENS = [64, 256, 1024, 4096, 16_384];
const WARM_SECONDS = 1;
const TRIALS_A_SECOND = 250;

const COLUMNS: Column[] = [
  { key: 'perSecond', title: '/s', digits: 1, spread: true },
  { key: 'p50Ms', title: 'p50 ms', digits: 2 },
  { key: 'addedP50Ms', title: 'added p50', digits: 2 },
  { key: 'ownMicros', title: 'own µs/call' },
  { key: 'ownTokenMicros', title: 'own µs/token', digits: 2 },
  { key: 'otherCores', title: 'others', digits: 2 },
  { key: 'peakMiB', title: 'peak MiB' },
  ...FAULT_COLUMNS,
];

export const growthTokens: Cell = {
  name: 'growth-tokens',
  about: 'replies of many tokens, c=1',
  async run(bench) {
    for (const stream of [false, true]) {
      for (const tokens of TOKENS) {
        await bench.engine.set({ tokens, paceMs: 0 });
        await using gateway = await bench.startGateway();
        const targets = [directTarget(bench.engine), gatewayTarget(gateway)];
        for (const target of targets) await once(bench, target, { stream, tokens, seconds: WARM_SECONDS });
        for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
          const found = new Map<string, Figures>();
          for (const target of rotated(targets, repeat)) found.set(target.name, await once(bench, target, { stream, tokens, seconds: bench.options.seconds }));
          for (const [target, figures] of withAdded(found)) {
            const what = `${stream ? 'stream' : 'call'} ${tokens}`;
            bench.report.add({ cell: growthTokens.name, case: what, target, repeat, figures }, ['perSecond', 'p50Ms', 'peakMiB', 'errors', 'lost']);
          }
        }
      }
    }
    bench.report.summarise(growthTokens.name, growthTokens.about, COLUMNS);
  },
};

type Shape = { stream: boolean; tokens: number; seconds: number };

async function once(bench: Bench, target: Target, { stream, tokens, seconds }: Shape): Promise<Figures> {
  const lines = await target.lines(Math.ceil(seconds * TRIALS_A_SECOND));
  const figures = await measureWrk(bench, target, { lines, connections: 1, seconds, stream, tokens });
  return target.pid === null ? figures : { ...figures, ownTokenMicros: (figures.ownMicros ?? 0) / tokens };
}
