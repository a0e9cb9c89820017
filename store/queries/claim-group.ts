import { and, asc, eq, isNotNull, isNull, sql } from 'drizzle-orm';
import { isCurrentAttempt } from './current-attempt.ts';
import { EXTERNAL_AGENT } from '../../core/run-config/rollouts.ts';
import type { Database } from '../database.ts';
import { attempts, groups, runs, trials } from '../schema.ts';
import { isLive } from './takes.ts';
import type { Transaction } from './transaction.ts';

export type ClaimedGroup = {
  groupId: string;
  task: string;
  trials: { trialId: string; trialIndex: number; attempt: number }[];
};

/**
 * Gives a program the oldest group of its run that no claim has, for the task that the program names. The same `claim` again gets the same
 * group, so a lost reply costs nothing. Returns null when no group waits.
 */
export async function claimGroup(
  db: Database,
  { runId, task, claim }: { runId: string; task: string; claim: string },
): Promise<ClaimedGroup | null> {
  return db.transaction(async (tx) => {
    // A client that repeats a claim must not get a second group while the first request still runs.
    await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`${runId} ${claim}`}, 0))`);
    const [earlier] = await tx
      .select()
      .from(groups)
      .where(and(eq(groups.runId, runId), eq(groups.claim, claim)));
    if (earlier) return readClaimed(tx, earlier);
    // The workflow opens the trials one by one, and a claim gets all of them.
    const isOpened = sql`(select count(*) = ${groups.size} and count(*) filter (where ${trials.outcome} is null) = count(*) filter (where ${trials.outcome} is null and ${attempts.endedAt} is null) and bool_or(${trials.outcome} is null) from ${trials} join ${attempts} on ${isCurrentAttempt} where ${trials.groupId} = ${groups.id})`;
    const [group] = await tx
      .select()
      .from(groups)
      .where(
        and(
          eq(groups.runId, runId),
          eq(groups.agent, EXTERNAL_AGENT),
          isNull(groups.claim),
          isNull(groups.endedAt),
          isNotNull(groups.deadlineAt),
          isLive(groups),
          isOpened,
        ),
      )
      .orderBy(asc(groups.iteration), asc(groups.ordinal))
      .limit(1)
      .for('update', { skipLocked: true });
    if (!group) return null;
    // The time of a group and of its trials begins with the claim.
    const seconds = sql`(select (config -> 'deadlines' ->> 'group')::float8 from ${runs} where ${runs.id} = ${runId})`;
    const now = sql`now()`;
    await tx
      .update(groups)
      .set({ task, claim, claimedAt: now, deadlineAt: sql`now() + make_interval(secs => ${seconds})` })
      .where(eq(groups.id, group.id));
    await tx
      .update(trials)
      .set({ task, attemptOpenedAt: now })
      .where(and(eq(trials.groupId, group.id), isNull(trials.outcome)));
    return readClaimed(tx, { id: group.id, task });
  });
}

/** Returns the group with its trials that have not ended. */
async function readClaimed(tx: Transaction, { id, task }: { id: string; task: string }): Promise<ClaimedGroup> {
  const rows = await tx
    .select({ trialId: trials.id, trialIndex: trials.trialIndex, attempt: trials.attempt })
    .from(trials)
    .innerJoin(attempts, isCurrentAttempt)
    .where(and(eq(trials.groupId, id), isNull(trials.outcome), isNull(attempts.endedAt)))
    .orderBy(asc(trials.trialIndex));
  return { groupId: id, task, trials: rows.map((row) => ({ ...row, trialIndex: row.trialIndex ?? 0 })) };
}
