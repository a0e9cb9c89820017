import type { AttemptCount } from '../../store/queries/count-attempts.ts';

/** Limits the length of the metrics page of a run with many tasks and steps. */
const MOST_TASKS = 100;
const MOST_VERSIONS = 50;

/**
 * Returns metrics of the ended attempts and infrastructure errors of active runs, for the newest policy versions and the tasks with the
 * most errors.
 */
export function attemptMetrics(counts: readonly AttemptCount[]): string {
  const versions = sumBy(
    counts,
    ({ runId, policyVersion }) => labels({ run: runId, policy_version: String(policyVersion ?? '') }),
    ({ policyVersion }) => policyVersion ?? -1,
  );
  const tasks = sumBy(
    counts,
    ({ runId, task }) => labels({ run: runId, task }),
    () => 0,
  );
  const newest = versions.toSorted((a, b) => b.rank - a.rank).slice(0, MOST_VERSIONS);
  const worst = tasks
    .filter(({ infraErrors }) => infraErrors > 0)
    .toSorted((a, b) => b.infraErrors - a.infraErrors)
    .slice(0, MOST_TASKS);
  return [
    ...family(
      'trialgate_attempts_by_policy_total',
      'Ended attempts of the runs under way, by the policy version that their first tokens are from.',
      newest,
      'ended',
    ),
    ...family(
      'trialgate_infra_errors_by_policy_total',
      'Attempts of them that ended by an infrastructure error.',
      newest,
      'infraErrors',
    ),
    ...family(
      'trialgate_attempts_by_task_total',
      'Ended attempts of the runs under way, of tasks that had infrastructure errors.',
      worst,
      'ended',
    ),
    ...family(
      'trialgate_infra_errors_by_task_total',
      'Attempts of them that ended by an infrastructure error.',
      worst,
      'infraErrors',
    ),
    '',
  ].join('\n');
}

type Sum = { labels: string; rank: number; ended: number; infraErrors: number };

function sumBy(
  counts: readonly AttemptCount[],
  labelsOf: (count: AttemptCount) => string,
  rankOf: (count: AttemptCount) => number,
): Sum[] {
  const sums = new Map<string, Sum>();
  for (const count of counts) {
    const key = labelsOf(count);
    const sum = sums.get(key) ?? { labels: key, rank: rankOf(count), ended: 0, infraErrors: 0 };
    sums.set(key, { ...sum, ended: sum.ended + count.ended, infraErrors: sum.infraErrors + count.infraErrors });
  }
  return [...sums.values()];
}

const family = (name: string, help: string, sums: readonly Sum[], what: 'ended' | 'infraErrors'): string[] => [
  `# HELP ${name} ${help}`,
  `# TYPE ${name} counter`,
  ...sums.map((sum) => `${name}{${sum.labels}} ${sum[what]}`),
];

/** Prometheus uses JSON's escapes for quotes, backslashes and line breaks. */
const labels = (pairs: Record<string, string>): string =>
  Object.entries(pairs)
    .map(([name, value]) => `${name}=${JSON.stringify(value)}`)
    .join(',');
