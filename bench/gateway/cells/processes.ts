import { gatewayTarget, directTarget, rotated, type Bench, type Cell, type Target } from '../cell.ts';
import type { Figures } from '../measure.ts';
import { FAULT_COLUMNS, measureWrk, RATE_COLUMNS, USE_COLUMNS, withAdded } from '../measure-wrk.ts';
import type { Column } from '../report.ts';

const TOKENS = 64;
const CONNECTIONS = 32;
const WARM_SECONDS = 4;
const TRIALS_A_SECOND = 800;
const MOST = 2;

const COLUMNS: Column[] = [...RATE_COLUMNS, ...USE_COLUMNS, ...FAULT_COLUMNS];

export const processes: Cell = {
  name: 'processes',
  about: `the cells calls and streams at c=${CONNECTIONS}, shared by 1 and ${MOST} gateway processes with one database (of two wrk: the mean of their medians, the worse p99)`,
  async run(bench) {
    await bench.engine.set({ tokens: TOKENS, paceMs: 0 });
    for (const stream of [false, true]) {
      await using one = await bench.startGateway();
      await using several = await bench.startGateway({ processes: MOST });
      const targets = [
        directTarget(bench.engine),
        { ...gatewayTarget(one), name: '1 process' },
        { ...gatewayTarget(several), name: `${MOST} processes` },
      ];
      for (const target of targets) await once(bench, target, stream, WARM_SECONDS);
      for (let repeat = 1; repeat <= bench.options.repeats; repeat++) {
        const found = new Map<string, Figures>();
        for (const target of rotated(targets, repeat))
          found.set(target.name, await once(bench, target, stream, bench.options.seconds));
        for (const [target, figures] of withAdded(found)) {
          bench.report.add({ cell: processes.name, case: stream ? 'streams' : 'calls', target, repeat, figures }, [
            'perSecond',
            'p50Ms',
            'p99Ms',
            'errors',
            'lost',
          ]);
        }
      }
    }
    bench.report.summarize(processes.name, processes.about, COLUMNS);
  },
};

async function once(bench: Bench, target: Target, stream: boolean, seconds: number): Promise<Figures> {
  const lines = await target.lines(seconds * TRIALS_A_SECOND);
  return measureWrk(bench, target, { lines, connections: CONNECTIONS, seconds, stream });
}
