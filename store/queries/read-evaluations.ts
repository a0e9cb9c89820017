import { and, eq, sql } from 'drizzle-orm';
import { LEAST_PASS } from '../../core/pass.ts';
import { passAtK, type TaskResult } from '../../core/pass-at-k.ts';
import type { Database } from '../database.ts';
import { groups, trials } from '../schema.ts';
import { weightedRewardOf } from './weighted-reward.ts';

export type EvaluationRow = {
  /** `eval@{version}`, or `eval@{version}.{n}` for an evaluation on demand. */
  id: string;
  policyVersion: number;
  trials: number;
  scored: number;
  rewardMean: number | null;
  /** pass@k by k, as `trialgate show` has it. */
  passAt: Record<string, number>;
};

/** Returns a run's evaluations on held-out tasks, by policy version. */
export async function readEvaluations(
  db: Database,
  runId: string,
  weights: Record<string, number>,
): Promise<EvaluationRow[]> {
  // The id of a group of an evaluation is `{run}/{evaluation}/{ordinal}`.
  const evaluation = sql<string>`regexp_replace(substr(${groups.id}, ${runId.length + 2}::int), '/[^/]*$', '')`;
  const tried = db.$with('tried').as(
    db
      .select({
        id: evaluation.as('evaluation'),
        policyVersion: groups.policyVersion,
        task: groups.task,
        reward: weightedRewardOf(weights).as('reward'),
      })
      .from(groups)
      .innerJoin(trials, eq(trials.groupId, groups.id))
      .where(and(eq(groups.runId, runId), eq(groups.kind, 'eval'))),
  );
  const byTask = db.$with('by_task').as(
    db
      .select({
        id: tried.id,
        policyVersion: sql<number>`max(${tried.policyVersion})`.as('version'),
        trials: sql<number>`count(*)`.as('trials'),
        scored: sql<number>`count(${tried.reward})`.as('scored'),
        sum: sql<number | null>`sum(${tried.reward})`.as('sum'),
        passed: sql<number>`count(*) filter (where ${tried.reward} >= ${LEAST_PASS}::float8)`.as('passed'),
      })
      .from(tried)
      .groupBy(tried.id, tried.task),
  );
  const rows = await db
    .with(tried, byTask)
    .select({
      id: byTask.id,
      policyVersion: sql<number>`max(${byTask.policyVersion})::int`,
      trials: sql<number>`sum(${byTask.trials})::int`,
      scored: sql<number>`sum(${byTask.scored})::int`,
      rewardMean: sql<number | null>`sum(${byTask.sum}) / nullif(sum(${byTask.scored}), 0)::float8`,
      tasks: sql<TaskResult[]>`json_agg(json_build_object('trials', ${byTask.scored}, 'passed', ${byTask.passed}))`,
    })
    .from(byTask)
    .groupBy(byTask.id)
    .orderBy(sql`2`, byTask.id);
  return rows.map(({ tasks, ...row }) => ({ ...row, passAt: passAtK(tasks) }));
}
