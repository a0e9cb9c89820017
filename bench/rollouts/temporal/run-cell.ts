import { asc, eq } from 'drizzle-orm';
import { median } from '../../../cli/show/statistics.ts';
import { table } from '../../../cli/show/table.ts';
import { iterations as iterationRows } from '../../../store/schema.ts';
import { Durations } from '../simulate/durations.ts';
import { historiesOf, type HistoryRow } from './histories.ts';
import { CORES, coresOf, historyTable } from './iteration-cell.ts';
import { loadMeter, type Load } from './load.ts';
import { runIn, type Stage } from './stage.ts';
import { World } from './world.ts';

export type LongRunRow = {
  iterations: number;
  groups: number;
  size: number;
  seconds: number;
  first: number;
  last: number;
  load: Load;
  histories: HistoryRow[];
};

/** Runs many small iterations whose agents and steps take no time. */
export async function longRun(
  stage: Stage,
  { iterations, groups, size }: { iterations: number; groups: number; size: number },
): Promise<LongRunRow> {
  const world = new World(
    {
      slots: groups * size,
      sandboxes: groups * size,
      durations: new Durations(1, size),
      medianSeconds: 0,
      deadline: 1,
      trainTime: 0,
      publishTime: 0,
    },
    stage,
  );
  const id = `run-${iterations}-${groups}-${size}`;
  const meter = loadMeter();
  const start = performance.now();
  await runIn(
    stage,
    world,
    groups * size,
    id,
    { groups_per_iteration: groups, group_size: size, iterations },
    (handle) => handle.result(),
  );
  const seconds = (performance.now() - start) / 1000;
  const takes = await stage.db
    .select()
    .from(iterationRows)
    .where(eq(iterationRows.runId, id))
    .orderBy(asc(iterationRows.iteration));
  const took = takes.map(({ openedAt, endedAt }) => ((endedAt?.getTime() ?? Number.NaN) - openedAt.getTime()) / 1000);
  const tenth = Math.max(1, Math.floor(iterations / 10));
  return {
    iterations,
    groups,
    size,
    seconds,
    first: median(took.slice(0, tenth)),
    last: median(took.slice(-tenth)),
    load: meter(),
    histories: await historiesOf(stage.environment.client, id),
  };
}

export function longRunReport(row: LongRunRow): string {
  const { iterations, groups, size, seconds, first, last, load, histories } = row;
  return [
    `A run of ${iterations} iterations of ${groups} x ${size} trials that take no time.`,
    table(
      ['iterations', 'seconds', 'ms/trial', 'first tenth, s each', 'last tenth', ...CORES],
      [
        [
          `${iterations}`,
          seconds.toFixed(1),
          ((1000 * seconds) / (iterations * groups * size)).toFixed(1),
          first.toFixed(2),
          last.toFixed(2),
          ...coresOf(load),
        ],
      ],
    ),
    historyTable(
      histories.map((each) => ({
        ...each,
        of: `${groups} x ${size}`,
        trials: each.workflow === 'rolloutGroup' ? size : groups * size,
      })),
    ),
  ].join('\n\n');
}
