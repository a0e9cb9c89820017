import { eq, inArray, isNotNull, and, sql } from 'drizzle-orm';
import { readRun } from '../../activities/run/read-run.ts';
import { weightedReward } from '../../core/weighted-reward.ts';
import type { Database } from '../../store/database.ts';
import { countAttempts, type AttemptCount } from '../../store/queries/count-attempts.ts';
import { attempts, runs, trials } from '../../store/schema.ts';
import { association, type Observation } from './association.ts';

type Rate = { ended: number; infra_errors: number };
export type InfraErrors = Rate & {
  /** The tasks that had such errors, the worst first. */
  by_task: (Rate & { task: string })[];
  by_policy_version: (Rate & { policy_version: number | null; reward_mean: number | null })[];
  /** Sentences for people about signs that infrastructure errors replace low rewards. */
  warnings: string[];
};

/** The threshold in standard deviations. Chance alone exceeds it in one run of 700. */
const BEYOND_CHANCE = 3;

/** Returns how often infrastructure errors ended a run's attempts, and whether they correlate with rewards as only deliberate errors do. */
export async function readInfraErrors(db: Database, runId: string): Promise<InfraErrors> {
  const [counts, scored] = await Promise.all([countAttempts(db, runId), readScored(db, runId)]);
  const byVersion = ratesBy(counts, ({ policyVersion }) => policyVersion).map(({ key, ...rate }) => ({
    policy_version: key,
    ...rate,
    reward_mean: meanOf(scored.flatMap(({ policyVersion, reward }) => (policyVersion === key ? [reward] : []))),
  }));
  const byTask = ratesBy(counts, ({ task }) => task).map(({ key, ...rate }) => ({ task: key, ...rate }));
  return {
    ...sumOf(counts),
    by_task: byTask
      .filter((row) => row.infra_errors > 0)
      .toSorted((a, b) => b.infra_errors / b.ended - a.infra_errors / a.ended),
    by_policy_version: byVersion.toSorted((a, b) => (a.policy_version ?? -1) - (b.policy_version ?? -1)),
    warnings: [...warnOfRetried(scored), ...warnOfTrend(byVersion)],
  };
}

/** Returns the warnings of all runs that are under way, each with its run's name. */
export async function readInfraWarnings(db: Database): Promise<string[]> {
  const underWay = await db
    .select({ id: runs.id })
    .from(runs)
    .where(inArray(runs.status, ['running', 'blocked']));
  const byRun = await Promise.all(
    underWay.map(async ({ id }) => (await readInfraErrors(db, id)).warnings.map((warning) => `run ${id}: ${warning}`)),
  );
  return byRun.flat();
}

export type ScoredTrial = { groupId: string | null; policyVersion: number | null; reward: number; wasRetried: boolean };

async function readScored(db: Database, runId: string): Promise<ScoredTrial[]> {
  const { reward_weights: weights } = await readRun(db, runId);
  const rows = await db
    .select({
      groupId: trials.groupId,
      policyVersion: trials.policyVersion,
      rewards: trials.rewards,
      wasRetried: sql<boolean>`exists (select from ${attempts} where ${attempts.trialId} = ${trials.id} and ${attempts.outcome} = 'infra_error')`,
    })
    .from(trials)
    .where(and(eq(trials.runId, runId), isNotNull(trials.rewards)));
  return rows.map(({ rewards, ...row }) => ({ ...row, reward: weightedReward(rewards ?? {}, weights) }));
}

/** Machine errors affect good and bad answers alike, so trials that were run again score no higher than the others of their group. */
export function warnOfRetried(scored: readonly ScoredTrial[]): string[] {
  const groups = Object.values(Object.groupBy(scored, ({ groupId }) => groupId ?? ''));
  const z = association(
    groups.map((group = []) =>
      group.map(({ reward, wasRetried }): Observation => ({ score: reward, marked: wasRetried ? 1 : 0, of: 1 })),
    ),
  );
  if (z <= BEYOND_CHANCE) return [];
  const retried = scored.filter(({ wasRetried }) => wasRetried);
  const [theirs, others] = [retried, scored.filter(({ wasRetried }) => !wasRetried)].map((rows) =>
    (meanOf(rows.map(({ reward }) => reward)) ?? 0).toFixed(3),
  );
  return [
    `${retried.length} trials were run again after an infrastructure error and score higher than the others of their groups (mean ${theirs}, others ${others}; ${z.toFixed(1)} standard deviations): something may cause these errors when an answer is wrong`,
  ];
}

type OfVersion = InfraErrors['by_policy_version'][number];

/** Machines do not fail more often as a policy learns. */
export function warnOfTrend(versions: readonly OfVersion[]): string[] {
  const known = versions.flatMap(({ reward_mean, ended, infra_errors }): Observation[] =>
    reward_mean === null ? [] : [{ score: reward_mean, marked: infra_errors, of: ended }],
  );
  const z = association([known]);
  return z <= BEYOND_CHANCE
    ? []
    : [
        `the rate of infrastructure errors rises with the reward of the policy versions (${z.toFixed(1)} standard deviations): the policy may be learning to cause them`,
      ];
}

function ratesBy<K>(counts: readonly AttemptCount[], keyOf: (count: AttemptCount) => K): ({ key: K } & Rate)[] {
  return [...Map.groupBy(counts, keyOf)].map(([key, rows]) => ({ key, ...sumOf(rows) }));
}

const sumOf = (counts: readonly AttemptCount[]): Rate => ({
  ended: counts.reduce((sum, { ended }) => sum + ended, 0),
  infra_errors: counts.reduce((sum, { infraErrors }) => sum + infraErrors, 0),
});

const meanOf = (values: readonly number[]): number | null =>
  values.length === 0 ? null : values.reduce((sum, each) => sum + each, 0) / values.length;

/** Returns lines for people; nothing if no attempt failed in this way. */
export function printInfraErrors({ ended, infra_errors, by_task, by_policy_version, warnings }: InfraErrors): string[] {
  if (infra_errors === 0) return [];
  const rate = (row: Rate): string => `${row.infra_errors} of ${row.ended}`;
  const tasks = by_task.slice(0, 5).map((row) => `${row.task.split('/').at(-1)} ${rate(row)}`);
  const versions = by_policy_version
    .filter((row) => row.infra_errors > 0)
    .slice(-5)
    .map((row) => `${row.policy_version} ${rate(row)}`);
  const line = `infrastructure errors: ${infra_errors} of ${ended} attempts; by task: ${tasks.join(', ')}; by policy version: ${versions.join(', ')}`;
  return [line, ...warnings.map((warning) => `WARNING: ${warning}`)];
}
