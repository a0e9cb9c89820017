import { and, asc, desc, eq, inArray, isNotNull, isNull, or, sql } from 'drizzle-orm';
import { EXTERNAL_AGENT, UNCLAIMED_TASK } from '../../core/run-config/rollouts.ts';
import type { Database } from '../database.ts';
import { attempts, groups, trials } from '../schema.ts';
import type { Transaction } from './transaction.ts';

export type ClaimedGroup = {
  groupId: string;
  task: string;
  trials: { trialId: string; trialIndex: number; attempt: number }[];
};

const currentAttempt = and(eq(attempts.trialId, trials.id), eq(attempts.attempt, trials.attempt));
const isOpen = and(isNull(trials.outcome), eq(trials.status, 'created'), isNull(attempts.endedAt));

/**
 * Gives a program the oldest group of its run that nobody has claimed, for the task that the program names. A group that was claimed before
 * and opened again goes only to a claim of the same task, because its rewards are compared with each other. The same `claim` again gets the
 * same group, so a lost reply costs nothing. Returns null when no group waits.
 */
export async function claimGroup(
  db: Database,
  { runId, task, claim }: { runId: string; task: string; claim: string },
): Promise<ClaimedGroup | null> {
  return db.transaction(async (tx) => {
    const ofClaim = and(eq(trials.runId, runId), eq(attempts.claim, claim));
    const earlier = await readTrials(tx, ofClaim);
    if (earlier) return earlier;
    const unclaimed = sql`(select count(*) from ${trials} join ${attempts} on ${currentAttempt} where ${trials.groupId} = ${groups.id} and ${isOpen} and ${attempts.claimedAt} is null)`;
    const unfinished = sql`(select count(*) from ${trials} where ${trials.groupId} = ${groups.id} and ${trials.outcome} is null)`;
    const opened = sql`(select count(*) from ${trials} where ${trials.groupId} = ${groups.id})`;
    const [group] = await tx
      .select({ id: groups.id })
      .from(groups)
      .where(
        and(
          eq(groups.runId, runId),
          eq(groups.agent, EXTERNAL_AGENT),
          isNull(groups.endedAt),
          isNotNull(groups.deadlineAt),
          or(eq(groups.task, UNCLAIMED_TASK), eq(groups.task, task)),
          sql`${unclaimed} > 0`,
          // The workflow opens the trials one by one, and a claim gets all of them.
          sql`${unclaimed} = ${unfinished}`,
          sql`${opened} = ${groups.size}`,
        ),
      )
      .orderBy(desc(eq(groups.task, task)), asc(groups.iteration), asc(groups.ordinal))
      .limit(1)
      .for('update', { skipLocked: true });
    if (!group) return null;
    const free = await tx
      .select({ id: trials.id })
      .from(trials)
      .innerJoin(attempts, currentAttempt)
      .where(and(eq(trials.groupId, group.id), isOpen, isNull(attempts.claimedAt)))
      .for('update', { of: trials });
    const ids = free.map(({ id }) => id);
    await tx.update(groups).set({ task }).where(eq(groups.id, group.id));
    // A budget of seconds counts from the claim.
    await tx
      .update(trials)
      .set({ task, attemptOpenedAt: sql`now()` })
      .where(inArray(trials.id, ids));
    await tx
      .update(attempts)
      .set({ claim, claimedAt: sql`now()` })
      .where(
        and(
          inArray(attempts.trialId, ids),
          sql`${attempts.attempt} = (select ${trials.attempt} from ${trials} where ${trials.id} = ${attempts.trialId})`,
        ),
      );
    return readTrials(tx, ofClaim);
  });
}

/** Returns the trials of one claim; null when there is none. */
async function readTrials(tx: Transaction, which: ReturnType<typeof and>): Promise<ClaimedGroup | null> {
  const rows = await tx
    .select({
      groupId: trials.groupId,
      task: trials.task,
      trialId: trials.id,
      trialIndex: trials.trialIndex,
      attempt: attempts.attempt,
    })
    .from(trials)
    .innerJoin(attempts, eq(attempts.trialId, trials.id))
    .where(which)
    .orderBy(asc(trials.trialIndex));
  const [first] = rows;
  if (!first?.groupId) return null;
  return {
    groupId: first.groupId,
    task: first.task ?? UNCLAIMED_TASK,
    trials: rows.map(({ trialId, trialIndex, attempt }) => ({ trialId, trialIndex: trialIndex ?? 0, attempt })),
  };
}
