import { and, eq, isNotNull, sql } from 'drizzle-orm';
import { groups, iterations, trials } from '../schema.ts';
import type { Executor } from './transaction.ts';

/**
 * Returns the best version of a run: the one with the highest mean reward in the evaluations that its run file asks for. If there are none
 * yet, the mean reward of the iteration that sampled from the version counts. Of equal ones it is the later. Versions that a superseded take
 * made do not count. Null when nothing has a reward.
 */
export async function bestVersion(
  db: Executor,
  runId: string,
  weights: Record<string, number>,
): Promise<number | null> {
  // The same as `weightedReward`: a run has too many trials to read them before each step.
  const weight = sql`coalesce((${JSON.stringify(weights)}::jsonb ->> named.key)::float8, 1)`;
  const weighted = sql`(select coalesce(sum(named.value::float8 * ${weight}), 0) from jsonb_each_text(${trials.rewards}) as named)`;
  const reward = sql`avg(${weighted})`.mapWith(Number);
  const rewarded = isNotNull(trials.rewards);
  const done = and(eq(iterations.runId, runId), eq(iterations.status, 'done'));
  const made = await db.select({ version: iterations.trainedVersion }).from(iterations).where(done);
  const own = new Set([0, ...made.map(({ version }) => version)]);
  // An evaluation on demand may have other tasks, so its rewards cannot be compared.
  const ofRunFile = sql`${groups.id} ~ '/eval@[0-9]+/[0-9]+$'`;
  const evaluated = await db
    .select({ version: groups.policyVersion, reward })
    .from(groups)
    .innerJoin(trials, eq(trials.groupId, groups.id))
    .where(and(eq(groups.runId, runId), eq(groups.kind, 'eval'), ofRunFile, rewarded))
    .groupBy(groups.policyVersion);
  const candidates = evaluated.filter(({ version }) => own.has(version));
  if (candidates.length > 0) return best(candidates);
  const ofTake = and(
    eq(groups.runId, iterations.runId),
    eq(groups.iteration, iterations.iteration),
    eq(groups.take, iterations.take),
  );
  const sampled = await db
    .select({ version: iterations.policyVersion, reward })
    .from(iterations)
    .innerJoin(groups, ofTake)
    .innerJoin(trials, eq(trials.groupId, groups.id))
    .where(and(done, rewarded))
    .groupBy(iterations.policyVersion);
  return best(sampled);
}

const best = (scores: readonly { version: number; reward: number }[]): number | null =>
  scores.toSorted((a, b) => a.reward - b.reward || a.version - b.version).at(-1)?.version ?? null;
