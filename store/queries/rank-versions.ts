import { and, desc, eq, isNotNull, sql } from 'drizzle-orm';
import { groups, iterations, trials } from '../schema.ts';
import { isOwnEvaluation } from './own-evaluation.ts';
import { isSameTake } from './takes.ts';
import type { Executor } from './transaction.ts';

/**
 * Returns the versions of a run by their mean reward, the best first: by the evaluations that its run file asks for, if they judge any version
 * besides version 0 and the last one, else by the iterations that sampled from them. Only evaluations of the same tasks are compared: of the
 * latest tasks by which such a version was judged. Of equal versions the later is first. Versions that a superseded take made do not count,
 * and versions without a reward are absent.
 */
export async function rankVersions(db: Executor, runId: string, weights: Record<string, number>): Promise<number[]> {
  // The same as `weightedReward`: a run has too many trials to read them before each step. Rewards of any size fit into `numeric`.
  const weight = sql`coalesce((${JSON.stringify(weights)}::jsonb ->> named.key)::numeric, 1)`;
  const weighted = sql`(select coalesce(sum(named.value::numeric * ${weight}), 0) from jsonb_each_text(${trials.rewards}) as named)`;
  const rewarded = isNotNull(trials.rewards);
  const reward = sql`avg(${weighted}) filter (where ${rewarded})`.mapWith(Number);
  const done = and(eq(iterations.runId, runId), eq(iterations.status, 'done'));
  const made = await db.select({ version: iterations.trainedVersion }).from(iterations).where(done);
  const own = new Set([0, ...made.flatMap(({ version }) => version ?? [])]);
  const last = Math.max(...own);
  // A task of which no trial has a reward belongs to its evaluation's tasks all the same.
  const tasks = sql<string>`md5(string_agg(distinct ${groups.task}, chr(10) order by ${groups.task}))`;
  // An evaluation on demand may have other trials a task.
  const evaluated = await db
    .select({ version: groups.policyVersion, tasks, reward })
    .from(groups)
    .leftJoin(trials, eq(trials.groupId, groups.id))
    .where(and(eq(groups.runId, runId), eq(groups.kind, 'eval'), isOwnEvaluation))
    .groupBy(groups.policyVersion)
    .orderBy(desc(groups.policyVersion));
  const ofOwn = evaluated.filter(({ version, reward: mean }) => own.has(version) && mean !== null);
  for (const compared of Map.groupBy(ofOwn, (each) => each.tasks).values())
    if (compared.some(({ version }) => version !== 0 && version !== last)) return ranked(compared);
  const sampled = await db
    .select({ version: iterations.policyVersion, reward })
    .from(iterations)
    .innerJoin(groups, isSameTake(groups, iterations))
    .innerJoin(trials, eq(trials.groupId, groups.id))
    .where(and(done, rewarded))
    .groupBy(iterations.policyVersion);
  return ranked(sampled);
}

const ranked = (scores: readonly { version: number; reward: number }[]): number[] =>
  scores.toSorted((a, b) => b.reward - a.reward || b.version - a.version).map(({ version }) => version);
