import { ApplicationFailure } from '@temporalio/common';
import { and, eq, isNotNull, sql } from 'drizzle-orm';
import type { Transaction } from '../../store/queries/transaction.ts';
import { groups, runs } from '../../store/schema.ts';
import { commonReason, isFailure, readGroupTrials } from './group-trials.ts';

/** A run most of whose trials fail for reasons that are not theirs waits for a person, rather than burn its tasks. */
export async function refuseMostFailed(tx: Transaction, take: { runId: string; iteration: number; take: number }, groupSize: number): Promise<void> {
  const { runId } = take;
  const sinceResumed = sql`${groups.endedAt} > coalesce((select ${runs.resumedAt} from ${runs} where ${runs.id} = ${runId}), '-infinity')`;
  const ended = and(eq(groups.runId, runId), eq(groups.iteration, take.iteration), eq(groups.take, take.take), isNotNull(groups.endedAt), sinceResumed);
  const all = await readGroupTrials(tx, ended);
  const failed = all.filter(isFailure);
  if (all.length < 2 * groupSize || failed.length * 2 <= all.length) return;
  const message = `${failed.length} of the iteration's first ${all.length} trials failed: ${commonReason(failed)}`;
  throw ApplicationFailure.create({ type: 'most_trials_failed', message, nonRetryable: true });
}
