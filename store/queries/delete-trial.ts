import { and, eq, isNull } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { attempts, batches, calls, groups, trials } from '../schema.ts';
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
    if (await isInBatch(tx, trial)) return;
    await tx.delete(calls).where(eq(calls.trialId, trialId));
  });
}

async function isInBatch(tx: Transaction, { groupId }: Trial): Promise<boolean> {
  if (groupId === null) return false;
  const ofTake = and(eq(batches.runId, groups.runId), eq(batches.iteration, groups.iteration), eq(batches.take, groups.take));
  const made = await tx.select({ sha256: batches.sha256 }).from(batches).innerJoin(groups, ofTake).where(eq(groups.id, groupId)).limit(1);
  return made.length > 0;
}
