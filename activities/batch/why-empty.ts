import { and, count, desc, eq, isNotNull, or, type SQL } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { batchOf, ofTake, type TakeKey } from '../../store/queries/takes.ts';
import { calls, groups, trials } from '../../store/schema.ts';
import { commonReason, countOutcomes, readGroupTrials } from '../rollout/group-trials.ts';

/** Says how the trials of a take ended whose batch has no sample, and why most of them have none. `stale` is the number of samples that are too old. */
export async function whyEmpty(db: Database, take: TakeKey, stale: number): Promise<string> {
  const which = or(ofTake(groups, take), ofTake(batchOf(groups), take));
  const all = await readGroupTrials(db, which);
  const failed = all.filter(({ outcome }) => outcome !== 'scored');
  const untrainable = await commonUntrainable(db, which);
  const reasons = [
    ...(failed.length > 0 ? [`most often: ${commonReason(failed)}`] : []),
    ...(stale > 0 ? [`${stale} samples are older than max_staleness allows`] : []),
    ...(untrainable === null ? [] : [`calls cannot be trained, most often: ${untrainable}`]),
  ];
  return [`its trials ended as ${countOutcomes(all)}`, ...reasons].join('; ');
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
