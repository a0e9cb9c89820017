import { ApplicationFailure } from '@temporalio/common';
import { and, isNotNull, sql } from 'drizzle-orm';
import type { Transaction } from '../../store/queries/transaction.ts';
import { groups, runs } from '../../store/schema.ts';
import { commonReason, isFailure, readGroupTrials } from './group-trials.ts';
import { ofTake, type TakeKey } from '../../store/queries/takes.ts';

/** Blocks a run when most of its trials fail through no fault of their own, so that it does not use up its tasks. */
export async function refuseMostFailed(tx: Transaction, take: TakeKey, groupSize: number): Promise<void> {
  const { runId } = take;
  const sinceResumed = sql`${groups.endedAt} > coalesce((select ${runs.resumedAt} from ${runs} where ${runs.id} = ${runId}), '-infinity')`;
  const ended = and(ofTake(groups, take), isNotNull(groups.endedAt), sinceResumed);
  const all = await readGroupTrials(tx, ended);
  const failed = all.filter(isFailure);
  const [size] = await tx
    .select({
      trials: sql<number>`coalesce(sum(${groups.size}), 0)::int`,
      cut: sql<number>`count(*) filter (where ${groups.dropped} is distinct from 'failed')::int`,
    })
    .from(groups)
    .where(ended);
  // A trial that no host opened has no row. A trial of a group that ended well without it may have none either.
  const unopened = size && size.cut === 0 ? size.trials - all.length : 0;
  const [bad, tried] = [failed.length + unopened, all.length + unopened];
  if (tried < 2 * groupSize || bad * 2 <= tried) return;
  const why = failed.length > 0 ? commonReason(failed) : 'no host opened a sandbox for them';
  const message = `${bad} of the iteration's first ${tried} trials failed: ${why}. Repair the cause, then "npx trialgate resume ${runId} --retry-failed"`;
  throw ApplicationFailure.create({ type: 'most_trials_failed', message, nonRetryable: true });
}
