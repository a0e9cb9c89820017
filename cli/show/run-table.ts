import { phaseSeconds } from './phase-seconds.ts';
import type { RunRecord, Summary } from './run-record.ts';
import { stepFigures } from './step-figures.ts';
import { table } from './table.ts';

const PHASES = ['rollout', 'batch', 'train', 'publish'];

/** Returns a run's text for people: the base model's evaluation, each iteration, and the later evaluations. */
export function runTable(record: Omit<RunRecord, 'config'>): string {
  const done = record.iterations.filter((row) => row.status !== 'superseded');
  const isAsync = done.some((row) => (row.batch?.metrics['staleness_max'] ?? 0) > 0);
  const rows = done.map((row) => [
    `${row.iteration}${row.take > 1 ? ` (take ${row.take})` : ''}`,
    outcomes(row),
    ...rewards(row),
    String(row.policy_version),
    ...(isAsync ? [staleness(row)] : []),
    ...PHASES.map((phase) => phaseSeconds(row, phase)?.toFixed(1) ?? '–'),
  ]);
  const header = [
    'iteration',
    'trials by outcome',
    'reward mean',
    'median',
    'std',
    'pass rate',
    'policy',
    ...(isAsync ? ['staleness mean/max'] : []),
  ];
  const [before, ...later] = record.evaluations;
  const figures = stepFigures(done);
  return [
    ...(before ? [evaluationLine(before)] : []),
    rows.length ? table([...header, ...PHASES.map((phase) => `${phase} s`)], rows) : 'no iteration yet',
    ...done.flatMap(({ iteration, skipped }) =>
      skipped === null ? [] : [`iteration ${iteration} made no update: ${skipped}`],
    ),
    ...done.flatMap((row) => noSignal(row) ?? []),
    ...equalGroups(done.findLast(({ status }) => status === 'done')),
    ...(figures === null ? [] : [figures]),
    ...prunedLine(record),
    ...record.quarantined.map(({ task, reason }) => `quarantined: ${task.split('/').at(-1)}: ${reason}`),
    ...later.map(evaluationLine),
  ].join('\n\n');
}

/** Says which versions, also of superseded takes, have no checkpoint any more because the run completed. */
function prunedLine({ iterations }: Pick<RunRecord, 'iterations'>): string[] {
  const pruned = iterations.flatMap(({ checkpoint, trained_version }) =>
    checkpoint?.pruned_at ? [trained_version] : [],
  );
  if (pruned.length === 0) return [];
  return [`pruned when the run completed (keep_checkpoints_at_end): the checkpoints of policy ${pruned.join(', ')}`];
}

/** Says so when a step learned nothing because no group has trials with different rewards. Null: it learned. */
function noSignal({
  iteration,
  skipped,
  metrics,
  groups,
  equal_groups,
  unrewarded_groups: unrewarded,
}: RunRecord['iterations'][number]): string | null {
  if (skipped !== null || metrics['actor/updates'] !== 0) return null;
  const others = unrewarded === 0 ? '' : `, ${unrewarded} ${unrewarded === 1 ? 'has' : 'have'} no reward`;
  return `iteration ${iteration} has no learning signal: ${equal_groups} of ${groups} groups have equal rewards${others}. Choose tasks that the policy solves sometimes, a larger group_size, or filter_groups`;
}

/** Says how many groups of the newest iteration had equal rewards, where its step learned from the others. */
function equalGroups(newest: RunRecord['iterations'][number] | undefined): string[] {
  if (!newest || newest.equal_groups === 0 || noSignal(newest) !== null) return [];
  const { iteration, equal_groups: equal, groups } = newest;
  return [`iteration ${iteration}: ${equal} of ${groups} groups had equal rewards`];
}

/** Returns one evaluation as a line. */
export function evaluationLine(row: RunRecord['evaluations'][number]): string {
  const policy = row.policy_version === 0 ? 'base model (policy 0)' : `policy ${row.policy_version}`;
  const [, , nth] = /^eval@(\d+)\.(\d+)$/.exec(row.id) ?? [];
  const name = nth === undefined ? policy : `${policy}, on demand ${nth}`;
  const passes = Object.entries(row.pass_at).map(([k, share]) => `pass@${k} ${percent(share)}`);
  const [mean, median, std, pass] = rewards(row);
  return `held-out tasks, ${name}: reward mean ${mean}, median ${median}, std ${std}, pass rate ${pass} (${[outcomes(row), ...passes].join(', ')})`;
}

const outcomes = (row: Summary): string =>
  Object.entries(row.trials)
    .map(([outcome, count]) => `${count} ${outcome}`)
    .join(', ') || 'none';

function rewards(row: Summary): [string, string, string, string] {
  const { reward } = row;
  if (!reward) return ['–', '–', '–', '–'];
  return [reward.mean.toFixed(3), reward.median.toFixed(3), reward.std.toFixed(3), passRate(row)];
}

/** Returns the share of trials with a reward of 1 or more. If that is none and rewards are above 0, the text says so. */
export function passRate({ reward, pass_rate }: Summary): string {
  if (!reward || pass_rate === null) return '–';
  return pass_rate === 0 && reward.mean > 0 ? '0%: no reward ≥ 1' : percent(pass_rate);
}

const staleness = ({ batch }: RunRecord['iterations'][number]): string =>
  batch ? `${(batch.metrics['staleness_mean'] ?? 0).toFixed(2)} / ${batch.metrics['staleness_max'] ?? 0}` : '–';

const percent = (share: number): string => `${(100 * share).toFixed(0)}%`;
