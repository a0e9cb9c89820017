import { rotated, protocolTargets, type Bench, type Cell, type ProtocolTarget } from '../cell.ts';
import type { Figures } from '../measure.ts';
import { FAULT_COLUMNS, measureWrk, RATE_COLUMNS, USE_COLUMNS, withAdded } from '../measure-wrk.ts';
import type { Column } from '../report.ts';
import { PROTOCOL_NAMES } from '../../../store/schema.ts';

const TOKENS = 64;
const CONCURRENCIES = [1, 32];
const WARM = { connections: 32, seconds: 2 };
const TRIALS_A_SECOND = { alone: 250, together: 800 };

const COLUMNS: Column[] = [...RATE_COLUMNS, ...USE_COLUMNS, ...FAULT_COLUMNS];

export const protocols: Cell = {
  name: 'protocols',
  about: `the same ${TOKENS} tokens in each protocol, plain and streamed; direct: the engine's own chat route, whichever protocol it stands beside`,
  run: async (bench) => {
    await bench.engine.set({ tokens: TOKENS, paceMs: 0 });
    for (const stream of [false, true])
      for (const connections of CONCURRENCIES) await compare(bench, stream, connections);
    bench.report.summarize(protocols.name, protocols.about, COLUMNS);
  },
};

async function compare(bench: Bench, stream: boolean, connections: number): Promise<void> {
  await using gateway = await bench.startGateway();
  const inProtocols = protocolTargets(bench, gateway, PROTOCOL_NAMES);
  for (const each of inProtocols) await once(bench, each, { ...WARM, stream });
  for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
    const found = new Map<string, Figures>();
    for (const each of rotated(inProtocols, repeat))
      found.set(each.target.name, await once(bench, each, { connections, stream, seconds: bench.options.seconds }));
    for (const [target, figures] of withAdded(found)) {
      bench.report.add(
        { cell: protocols.name, case: `${stream ? 'streams' : 'calls'} c=${connections}`, target, repeat, figures },
        ['perSecond', 'p50Ms', 'p99Ms', 'errors', 'lost'],
      );
    }
  }
}

type Shape = { connections: number; stream: boolean; seconds: number };

async function once(
  bench: Bench,
  { target, protocol }: ProtocolTarget,
  { connections, stream, seconds }: Shape,
): Promise<Figures> {
  const lines = await target.lines(Math.ceil(seconds * TRIALS_A_SECOND[connections === 1 ? 'alone' : 'together']));
  return measureWrk(bench, target, { lines, connections, seconds, stream, protocol });
}
