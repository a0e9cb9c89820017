import { and, count, desc, eq, isNotNull, or, sql, type SQL } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { batchOf, ofTake, type TakeKey } from '../../store/queries/takes.ts';
import { calls, groups, trials } from '../../store/schema.ts';
import { commonReason, countOutcomes, isFailure, readGroupTrials } from '../rollout/group-trials.ts';

/**
 * Says how the trials of a take ended whose batch has no sample, why most of them have none, and what a person can do. `stale` is the number
 * of samples that are too old.
 */
export async function whyEmpty(db: Database, take: TakeKey, stale: number): Promise<string> {
  const which = or(ofTake(groups, take), ofTake(batchOf(groups), take));
  const all = await readGroupTrials(db, which);
  const failed = all.filter(({ outcome }) => outcome !== 'scored');
  const untrainable = await commonUntrainable(db, which);
  const withoutReply = all.length === 0 ? null : await whyNoReply(db, which);
  const reasons = [
    ...(failed.length > 0 ? [`most often: ${commonReason(failed)}`] : []),
    ...(withoutReply === null ? [] : [withoutReply]),
    ...(stale > 0 ? [`${stale} samples are older than max_staleness allows`] : []),
    ...(untrainable === null ? [] : [`calls cannot be trained, most often: ${untrainable}`]),
  ];
  const { runId } = take;
  const redo = `Repair the cause, then "npx trialgate redo ${runId}" samples anew`;
  // Only these run again: a trial with a verdict keeps it.
  const repeats = all.some((trial) => isFailure(trial) || trial.outcome === null);
  return (
    `${[`its trials ended as ${countOutcomes(all)}`, ...reasons].join('; ')}. "npx trialgate trials ${runId}" lists its trials. ` +
    (repeats ? `${redo}, or "npx trialgate resume ${runId} --retry-failed" repeats failed trials` : redo)
  );
}

/** Says why no call of these groups' trials got a reply; null if one did. */
async function whyNoReply(db: Database, which: SQL | undefined): Promise<string | null> {
  const made = await db
    .select({ status: calls.status, reason: sql<string | null>`left(${calls.reason}, 500)`, times: count() })
    .from(calls)
    .innerJoin(trials, and(eq(trials.id, calls.trialId), eq(trials.attempt, calls.attempt)))
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(which)
    .groupBy(calls.status, sql`2`)
    .orderBy(desc(count()));
  if (made.length === 0)
    return 'the agents made no call: they must ask the base URL and use the key that they are given';
  if (made.some(({ status }) => status === 'completed')) return null;
  const reason = made.find((row) => row.reason !== null)?.reason;
  return `no call got a reply${reason ? `, most often: ${reason}` : ''}`;
}

/** Returns why most of the calls that cannot be trained cannot, or null if all can. */
async function commonUntrainable(db: Database, which: SQL | undefined): Promise<string | null> {
  const [most] = await db
    .select({ reason: calls.untrainable })
    .from(calls)
    .innerJoin(trials, and(eq(trials.id, calls.trialId), eq(trials.attempt, calls.attempt)))
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(and(which, isNotNull(calls.untrainable)))
    .groupBy(calls.untrainable)
    .orderBy(desc(count()))
    .limit(1);
  return most?.reason ?? null;
}
