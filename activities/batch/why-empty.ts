import { and, count, desc, eq, isNotNull, or, sql, type SQL } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { batchOf, ofTake, type TakeKey } from '../../store/queries/takes.ts';
import { calls, groups, refusals, trials } from '../../store/schema.ts';
import { commonReason, countOutcomes, readGroupTrials, type GroupTrial } from '../rollout/group-trials.ts';

/**
 * Says how the trials of a take ended whose batch has no sample, why most of them have none, and what a person can do. `stale` is the number
 * of samples that are too old.
 */
export async function whyEmpty(db: Database, take: TakeKey, stale: number): Promise<string> {
  const which = or(ofTake(groups, take), ofTake(batchOf(groups), take));
  const all = await readGroupTrials(db, which);
  const failed = all.filter(({ outcome }) => outcome !== 'scored');
  const untrainable = await commonUntrainable(db, which);
  // Agents that never started made no call either.
  const withoutReply = all.some(hasVerdict) ? await whyNoReply(db, which) : null;
  const reasons = [
    ...(failed.length > 0 ? [`most often: ${commonReason(failed)}`] : []),
    ...(withoutReply === null ? [] : [withoutReply]),
    ...(stale > 0 ? [`${stale} samples are older than max_staleness allows`] : []),
    ...(untrainable === null ? [] : [`calls cannot be trained, most often: ${untrainable}`]),
  ];
  const { runId } = take;
  const redo = `Repair the cause, then "npx trialgate redo ${runId}" samples anew`;
  const repeats = !all.every((trial) => hasVerdict(trial) || trial.outcome === 'cancelled');
  return (
    `${[`its trials ended as ${countOutcomes(all)}`, ...reasons].join('; ')}. "npx trialgate trials ${runId}" lists its trials. ` +
    (repeats ? `${redo}, or "npx trialgate resume ${runId} --retry-failed" repeats failed trials` : redo)
  );
}

/** True for a trial that a resume does not repeat (`reopenFailed`). */
const hasVerdict = ({ outcome }: GroupTrial): boolean => outcome === 'scored' || outcome === 'truncated';

/** Says why no call of these groups' trials got a reply; null if one did. */
async function whyNoReply(db: Database, which: SQL | undefined): Promise<string | null> {
  const made = (also?: SQL) =>
    db
      .select({ reason: sql<string | null>`min(left(${calls.reason}, 500))` })
      .from(calls)
      .innerJoin(trials, and(eq(trials.id, calls.trialId), eq(trials.attempt, calls.attempt)))
      .innerJoin(groups, eq(groups.id, trials.groupId))
      .where(and(which, also))
      // Reasons that differ only in numbers count as the same.
      .groupBy(sql`regexp_replace(left(${calls.reason}, 500), '[0-9]+', '#', 'g')`)
      .orderBy(desc(count()))
      .limit(1);
  const [completed] = await made(eq(calls.status, 'completed'));
  if (completed) return null;
  const [failed] = await made();
  if (failed) return `no call got a reply${failed.reason ? `, most often: ${failed.reason}` : ''}`;
  const [refused] = await db
    .select({ latest: refusals.latest })
    .from(refusals)
    .innerJoin(trials, eq(trials.id, refusals.trialId))
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(which)
    .limit(1);
  const [last] = refused?.latest ?? [];
  if (last) return `all requests of the agents were refused: ${last.code}: ${last.message}`;
  return 'the agents made no call: they must ask the base URL and use the key that they are given';
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
