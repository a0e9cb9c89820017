import { and, eq, isNull } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { attempts, calls, groups, refusals, trials } from '../schema.ts';
import { lockTrial, type Transaction, type Trial } from './transaction.ts';

/**
 * Hides a trial, closes it and deletes its calls. The calls of a trial that was trained on stay, so that they can be looked up. The
 * trial's row stays and refuses late writers. Repeating it is harmless, and so is an unknown trial.
 */
export async function deleteTrial(db: Database, input: { trialId: string }): Promise<void> {
  const { trialId } = input;
  await db.transaction(async (tx) => {
    const trial = await lockTrial(tx, trialId);
    if (!trial) return;
    await tx.update(trials).set({ status: 'deleted' }).where(eq(trials.id, trialId));
    await tx.update(attempts).set({ endedAt: new Date() }).where(and(eq(attempts.trialId, trialId), isNull(attempts.endedAt)));
    await tx.delete(refusals).where(eq(refusals.trialId, trialId));
    if (await isTrained(tx, trial)) return;
    await tx.delete(calls).where(eq(calls.trialId, trialId));
  });
}

/** True when a batch was made of the trial. A batch also marks the trials that it counts as dropped. */
async function isTrained(tx: Transaction, { batchIteration, outcome, groupId }: Trial): Promise<boolean> {
  if (batchIteration === null || outcome === 'cancelled') return false;
  const [group] = groupId === null ? [] : await tx.select({ dropped: groups.dropped }).from(groups).where(eq(groups.id, groupId));
  return (group?.dropped ?? null) === null;
}
