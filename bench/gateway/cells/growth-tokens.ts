import { rotated, protocolTargets, type Bench, type Cell, type ProtocolTarget } from '../cell.ts';
import type { Figures } from '../measure.ts';
import { FAULT_COLUMNS, measureWrk, withAdded } from '../measure-wrk.ts';
import type { Column } from '../report.ts';
import { PROTOCOL_NAMES, type ProtocolName } from '../../../store/schema.ts';

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
  about: "replies of many tokens, c=1, in each protocol beside the engine's own chat route",
  async run(bench) {
    for (const stream of [false, true]) {
      for (const tokens of TOKENS) {
        await bench.engine.set({ tokens, paceMs: 0 });
        for (const protocol of PROTOCOL_NAMES) await compare(bench, protocol, { stream, tokens });
      }
    }
    bench.report.summarize(growthTokens.name, growthTokens.about, COLUMNS);
  },
};

type Shape = { stream: boolean; tokens: number };

/** Compares in a fresh gateway process, because the memory of another protocol's load would remain. */
async function compare(bench: Bench, protocol: ProtocolName, shape: Shape): Promise<void> {
  await using gateway = await bench.startGateway();
  const inProtocols = protocolTargets(bench, gateway, [protocol]);
  for (const each of inProtocols) await once(bench, each, shape, WARM_SECONDS);
  for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
    const found = new Map<string, Figures>();
    for (const each of rotated(inProtocols, repeat))
      found.set(each.target.name, await once(bench, each, shape, bench.options.seconds));
    const what = `${shape.stream ? 'stream' : 'call'} ${shape.tokens}, ${protocol}`;
    for (const [target, figures] of withAdded(found))
      bench.report.add({ cell: growthTokens.name, case: what, target, repeat, figures }, [
        'perSecond',
        'p50Ms',
        'peakMiB',
        'errors',
        'lost',
      ]);
  }
}

async function once(
  bench: Bench,
  { target, protocol }: ProtocolTarget,
  { stream, tokens }: Shape,
  seconds: number,
): Promise<Figures> {
  const lines = await target.lines(Math.ceil(seconds * TRIALS_A_SECOND));
  const figures = await measureWrk(bench, target, { lines, connections: 1, seconds, stream, tokens, protocol });
  return target.pid === null ? figures : { ...figures, ownTokenMicros: (figures.ownMicros ?? 0) / tokens };
}
