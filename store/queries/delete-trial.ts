import { and, eq, isNull } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { attempts, calls, groups, refusals, trials } from '../schema.ts';
import { lockTrial, type Transaction, type Trial } from './transaction.ts';

/**
 * Hides a trial and closes it. Its calls go, unless a batch was made of them: what was trained on can be looked up. Its row stays as
 * the fence for late writers. Idempotent, also for an unknown trial.
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

/** A batch also marks what it counts as lost. */
async function isTrained(tx: Transaction, { batchIteration, outcome, groupId }: Trial): Promise<boolean> {
  if (batchIteration === null || outcome === 'cancelled') return false;
  const [group] = groupId === null ? [] : await tx.select({ dropped: groups.dropped }).from(groups).where(eq(groups.id, groupId));
  return (group?.dropped ?? null) === null;
}
