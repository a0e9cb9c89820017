import { and, eq, inArray, isNull, or, sql } from 'drizzle-orm';
import type { Outcome } from '../../core/outcomes.ts';
import type { Database } from '../database.ts';
import { batches, groups, iterations, trials } from '../schema.ts';

/** The outcomes by which a broken agent or verifier ends a trial. */
const FAILED: Outcome[] = ['timed_out', 'agent_error', 'verifier_error'];

/** Returns the condition for the failed trials of a run's open groups. Trials of a written batch stay as they are. */
function failedTrials(db: Database, runId: string) {
  const isOfBatch = sql`exists (select 1 from ${batches} as batch where batch.run_id = ${groups.runId} and batch.iteration = ${groups.batchIteration} and batch.take = ${groups.batchTake})`;
  const isLive = sql`exists (select 1 from ${iterations} as live where live.run_id = ${groups.runId} and live.iteration = ${groups.iteration} and live.take = ${groups.take} and live.status <> 'superseded')`;
  const open = db
    .select({ id: groups.id })
    .from(groups)
    .where(
      and(
        eq(groups.runId, runId),
        eq(groups.kind, 'train'),
        or(isNull(groups.dropped), eq(groups.dropped, 'failed')),
        isLive,
        sql`not ${isOfBatch}`,
      ),
    );
  return and(inArray(trials.groupId, open), inArray(trials.outcome, FAILED));
}

/** Returns the number of trials that `reopenFailed` would let run again. */
export const countFailed = (db: Database, runId: string): Promise<number> => db.$count(trials, failedTrials(db, runId));

/**
 * Lets the failed trials of a run's open groups have a next attempt, after a person has repaired their agent or verifier. Their earlier attempts
 * keep their outcomes. The run must not be under way. Returns the number of trials.
 */
export async function reopenFailed(db: Database, runId: string): Promise<number> {
  const reopened = await db
    .update(trials)
    .set({ outcome: null, rewards: null, turnRewards: null, sealedAt: null })
    .where(failedTrials(db, runId))
    .returning({ id: trials.id });
  return reopened.length;
}
