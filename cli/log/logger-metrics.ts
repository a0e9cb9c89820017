import type { RunRecord } from '../show/run-record.ts';

/** verl's names of the phases. */
const PHASES: Record<string, string> = { rollout: 'gen', publish: 'update_weights' };

/** Returns what loggers show of a train step: the step's own metrics, and what the record has of its batch, its rollout and its phases. */
export function iterationMetrics(row: RunRecord['iterations'][number]): Record<string, number> {
  return {
    ...row.metrics,
    'training/global_step': row.iteration + 1,
    'training/policy_version': row.trained_version ?? 0,
    ...prefixed('batch', row.batch?.metrics ?? {}),
    ...summaryMetrics('rollout', row),
    ...Object.fromEntries(
      Object.entries(row.seconds).map(([phase, seconds]) => [`timing_s/${PHASES[phase] ?? phase}`, seconds]),
    ),
  };
}

/** Returns what loggers show of an evaluation. */
export function evaluationMetrics(row: RunRecord['evaluations'][number]): Record<string, number> {
  return {
    ...summaryMetrics('val', row),
    ...prefixed('val/pass@', row.pass_at, ''),
    ...(row.seconds === null ? {} : { 'val/seconds': row.seconds }),
  };
}

type Summary = Pick<
  RunRecord['evaluations'][number],
  'reward' | 'pass_rate' | 'trials' | 'repeated_attempts' | 'groups' | 'equal_groups' | 'dropped'
>;

function summaryMetrics(prefix: string, row: Summary): Record<string, number> {
  const { reward } = row;
  return {
    ...(reward === null
      ? {}
      : prefixed(`${prefix}/reward_`, { mean: reward.mean, median: reward.median, std: reward.std }, '')),
    ...(row.pass_rate === null ? {} : { [`${prefix}/pass_rate`]: row.pass_rate }),
    ...prefixed(`${prefix}/trials`, row.trials),
    [`${prefix}/repeated_attempts`]: row.repeated_attempts,
    [`${prefix}/groups`]: row.groups,
    [`${prefix}/equal_groups`]: row.equal_groups,
    ...prefixed(`${prefix}/dropped`, row.dropped),
  };
}

const prefixed = (prefix: string, metrics: Record<string, number>, separator = '/'): Record<string, number> =>
  Object.fromEntries(Object.entries(metrics).map(([name, value]) => [`${prefix}${separator}${name}`, value]));
