import { protocolTargets, type Bench, type Cell, type ProtocolTarget } from '../cell.ts';
import { prime } from '../load/prime.ts';
import type { Figures } from '../measure.ts';
import { FAULT_COLUMNS, measureWrk, withAdded } from '../measure-wrk.ts';
import { residentMiB } from '../parts/usage.ts';
import type { Column } from '../report.ts';
import { PROTOCOL_NAMES, type ProtocolName } from '../../../store/schema.ts';

const TOKENS = 64;
const OPEN = [1, 100, 1000, 5000];
const TURNS = 2;
const CONNECTIONS = 32;
const WARM_SECONDS = 2;
const TRIALS_A_SECOND = 800;

const COLUMNS: Column[] = [
  { key: 'idleMiB', title: 'resident MiB before' },
  { key: 'perSecond', title: '/s', spread: true },
  { key: 'p50Ms', title: 'p50 ms', digits: 2 },
  { key: 'addedP50Ms', title: 'added p50', digits: 2 },
  { key: 'ownMicros', title: 'own µs/call' },
  { key: 'otherCores', title: 'others', digits: 2 },
  { key: 'peakMiB', title: 'peak MiB' },
  ...FAULT_COLUMNS,
];

export const growthTrials: Cell = {
  name: 'growth-trials',
  about: `calls of new trials, c=${CONNECTIONS}, while others are open in the same process with ${TURNS} turns each`,
  async run(bench) {
    await bench.engine.set({ tokens: TOKENS, paceMs: 0 });
    for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
      for (const open of OPEN) {
        for (const protocol of PROTOCOL_NAMES) {
          const found = await beside(bench, open, protocol);
          for (const [target, figures] of withAdded(found))
            bench.report.add({ cell: growthTrials.name, case: `${open} open, ${protocol}`, target, repeat, figures }, [
              'idleMiB',
              'perSecond',
              'p50Ms',
              'peakMiB',
              'lost',
            ]);
        }
      }
    }
    bench.report.summarize(growthTrials.name, growthTrials.about, COLUMNS);
  },
};

/** Measures in a fresh gateway process, because another protocol's trials would stay open. */
async function beside(bench: Bench, open: number, protocol: ProtocolName): Promise<Map<string, Figures>> {
  await using gateway = await bench.startGateway();
  const inProtocols = protocolTargets(bench, gateway, [protocol]);
  for (const each of inProtocols) await load(bench, each, WARM_SECONDS);
  for (const { target } of inProtocols)
    if (!target.direct) await prime(target, await target.lines(open), { turns: TURNS, protocol, signal: bench.signal });
  const idleMiB = residentMiB(gateway.pid);
  const found = new Map<string, Figures>();
  for (const each of inProtocols)
    found.set(each.target.name, {
      ...(await load(bench, each, bench.options.seconds)),
      ...(each.target.direct ? {} : { idleMiB }),
    });
  return found;
}

const load = async (bench: Bench, { target, protocol }: ProtocolTarget, seconds: number): Promise<Figures> =>
  measureWrk(bench, target, {
    lines: await target.lines(seconds * TRIALS_A_SECOND),
    connections: CONNECTIONS,
    seconds,
    stream: false,
    protocol,
  });
