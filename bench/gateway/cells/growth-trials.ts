import { directTarget, gatewayTarget, type Bench, type Cell, type Target } from '../cell.ts';
import { prime } from '../load/prime.ts';
import type { Figures } from '../measure.ts';
import { FAULT_COLUMNS, measureWrk, withAdded } from '../measure-wrk.ts';
import { residentMiB } from '../parts/usage.ts';
import type { Column } from '../report.ts';

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
        await using gateway = await bench.startGateway();
        const target = gatewayTarget(gateway);
        await load(bench, target, WARM_SECONDS);
        await prime(target, await target.lines(open), { turns: TURNS, signal: bench.signal });
        const idle = { idleMiB: residentMiB(gateway.pid) };
        const found = new Map<string, Figures>();
        found.set('direct', await load(bench, directTarget(bench.engine), bench.options.seconds));
        found.set('trialgate', { ...(await load(bench, target, bench.options.seconds)), ...idle });
        for (const [name, figures] of withAdded(found)) bench.report.add({ cell: growthTrials.name, case: `${open} open`, target: name, repeat, figures }, ['idleMiB', 'perSecond', 'p50Ms', 'peakMiB', 'lost']);
      }
    }
    bench.report.summarise(growthTrials.name, growthTrials.about, COLUMNS);
  },
};

const load = async (bench: Bench, target: Target, seconds: number): Promise<Figures> =>
  measureWrk(bench, target, { lines: await target.lines(seconds * TRIALS_A_SECOND), connections: CONNECTIONS, seconds, stream: false });
