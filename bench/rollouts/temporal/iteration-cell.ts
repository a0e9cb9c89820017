import { eq } from 'drizzle-orm';
import { table } from '../../../cli/show/table.ts';
import { trials } from '../../../store/schema.ts';
import { Durations } from '../simulate/durations.ts';
import { historiesOf, type HistoryRow } from './histories.ts';
import { loadMeter, type Load } from './load.ts';
import { runIn, type Stage } from './stage.ts';
import { World } from './world.ts';

export type IterationRow = {
  groups: number;
  size: number;
  inFlight: number;
  agentSeconds: number;
  /** Seconds from the run's start to the train step. */
  rolloutSeconds: number;
  /** Wall seconds for each trial beyond the least time that its agents need. */
  overheadPerTrial: number;
  unfinished: number;
  load: Load;
  histories: HistoryRow[];
};

/** Runs one iteration whose agents each take `agentSeconds`. Sandboxes and engine have room for `inFlight` at once. */
export async function oneIteration(
  stage: Stage,
  { groups, size, inFlight, agentSeconds }: { groups: number; size: number; inFlight: number; agentSeconds: number },
): Promise<IterationRow> {
  const durations = new Durations(1, size);
  const world = new World(
    {
      slots: inFlight,
      sandboxes: inFlight,
      durations,
      medianSeconds: agentSeconds,
      deadline: 1,
      trainTime: 0,
      publishTime: 0,
    },
    stage,
  );
  const id = `iteration-${groups}-${size}-${inFlight}`;
  const meter = loadMeter();
  const start = performance.now() / 1000;
  await runIn(stage, world, inFlight, id, { groups_per_iteration: groups, group_size: size, iterations: 1 }, (handle) =>
    handle.result(),
  );
  const load = meter();
  const rolloutSeconds = (world.steps[0]?.wall ?? Number.NaN) - start;
  const count = groups * size;
  const least = Math.ceil(count / inFlight) * agentSeconds;
  const rows = await stage.db.select({ outcome: trials.outcome }).from(trials).where(eq(trials.runId, id));
  const unfinished = count - rows.filter(({ outcome }) => outcome === 'scored' || outcome === 'truncated').length;
  return {
    groups,
    size,
    inFlight: Math.min(inFlight, count, world.engine.peakWanted),
    agentSeconds,
    rolloutSeconds,
    overheadPerTrial: (rolloutSeconds - least) / count,
    unfinished,
    load,
    histories: await historiesOf(stage.environment.client, id),
  };
}

export function iterationReport(rows: IterationRow[]): string {
  const lines = rows.flatMap(
    ({ groups, size, inFlight, agentSeconds, rolloutSeconds, overheadPerTrial, unfinished, load }) => [
      [
        `${groups} x ${size}`,
        `${inFlight}`,
        agentSeconds.toFixed(0),
        rolloutSeconds.toFixed(1),
        ((groups * size) / rolloutSeconds).toFixed(1),
        (1000 * overheadPerTrial).toFixed(1),
        `${unfinished}`,
        ...coresOf(load),
      ],
    ],
  );
  return [
    'One iteration, fake agents of a fixed time, real sandboxes without a process in them.',
    table(
      ['trials', 'in flight', 'agent s', 'rollout s', 'trials/s', 'overhead ms/trial', 'unfinished', ...CORES],
      lines,
    ),
    historyTable(
      rows.flatMap(({ groups, size, inFlight, histories }) =>
        histories.map((row) => ({
          ...row,
          of: `${groups} x ${size}, ${inFlight}`,
          trials: row.workflow === 'rolloutGroup' ? size : groups * size,
        })),
      ),
    ),
  ].join('\n\n');
}

export const CORES = ['cores: worker', 'Temporal', 'PostgreSQL', 'others', 'loop busy'];
export const coresOf = ({ worker, temporal, postgres, others, loop }: Load): string[] => [
  ...[worker, temporal, postgres, others].map((cores) => cores.toFixed(2)),
  loop.toFixed(2),
];

export function historyTable(rows: (HistoryRow & { of: string; trials: number })[]): string {
  const kb = (bytes: number) => (bytes / 1000).toFixed(1);
  const lines = rows.map(({ of, workflow, executions, events, bytes, trials: count }) => [
    of,
    workflow,
    `${executions}`,
    `${events.median}`,
    `${events.most}`,
    kb(bytes.median),
    kb(bytes.most),
    (events.most / count).toFixed(1),
    kb(bytes.most / count),
  ]);
  return table(['of', 'workflow', 'executions', 'events', 'most', 'kB', 'most kB', 'events/trial', 'kB/trial'], lines);
}
