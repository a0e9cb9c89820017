import { rotated, protocolTargets, type Bench, type Cell, type ProtocolTarget } from '../cell.ts';
import { prime } from '../load/prime.ts';
import type { Figures } from '../measure.ts';
import { FAULT_COLUMNS, measureWrk, RATE_COLUMNS, USE_COLUMNS, withAdded } from '../measure-wrk.ts';
import type { Column } from '../report.ts';
import { PROTOCOL_NAMES } from '../../../store/schema.ts';

const TOKENS = 64;
export const CONNECTIONS = 32;
export const WARM_SECONDS = 2;
/** The number of trials that take turns, so large that a turn has long ended when its trial's next one begins. */
const SET = 512;
const MORE_TURNS = 8;
/** The rate for which there are enough conversations. At a higher rate they get more turns. */
const EXPECTED_A_SECOND = 3000;

const COLUMNS: Column[] = [
  ...RATE_COLUMNS,
  ...USE_COLUMNS,
  { key: 'unclean', title: 'not by ids', sum: true },
  ...FAULT_COLUMNS,
];

/** Makes the first turn of each conversation before the measurement, so that every measured call continues from recorded ids. */
export const tokenIn: Cell = {
  name: 'token-in',
  about: `turns 2 to ${MORE_TURNS + 1} of conversations, c=${CONNECTIONS}; the engine alone is asked for the same by its chat route, whichever protocol it stands beside`,
  async run(bench) {
    for (const stream of [false, true]) {
      await using gateway = await bench.startGateway();
      const inProtocols = protocolTargets(bench, gateway, PROTOCOL_NAMES);
      for (const each of inProtocols) await turns(bench, each, stream, WARM_SECONDS);
      for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
        const found = new Map<string, Figures>();
        for (const each of rotated(inProtocols, repeat))
          found.set(each.target.name, await turns(bench, each, stream, bench.options.seconds));
        for (const [target, figures] of withAdded(found)) {
          bench.report.add({ cell: tokenIn.name, case: stream ? 'streams' : 'calls', target, repeat, figures }, [
            'perSecond',
            'p50Ms',
            'p99Ms',
            'errors',
            'lost',
            'unclean',
          ]);
        }
      }
    }
    bench.report.summarize(tokenIn.name, tokenIn.about, COLUMNS);
  },
};

/** Makes turns of the cell's conversations. `unclean` counts those that did not continue from recorded ids. */
export async function turns(
  bench: Bench,
  { target, protocol }: ProtocolTarget,
  stream: boolean,
  seconds: number,
): Promise<Figures> {
  await bench.engine.set({ tokens: TOKENS, paceMs: 0 });
  const sets = Math.ceil((EXPECTED_A_SECOND * seconds) / (SET * MORE_TURNS));
  const lines = await target.lines(sets * SET);
  if (!target.direct) await prime(target, lines, { protocol, signal: bench.signal });
  const figures = await measureWrk(bench, target, {
    lines,
    connections: CONNECTIONS,
    seconds,
    stream,
    protocol,
    turns: { set: SET, had: 1, more: MORE_TURNS },
  });
  const { completed, clean } = figures;
  return completed === undefined || clean === undefined ? figures : { ...figures, unclean: completed - clean };
}
