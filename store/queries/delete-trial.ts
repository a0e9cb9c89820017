import { and, eq, isNull } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { attempts, calls, trials } from '../schema.ts';
import { lockTrial } from './transaction.ts';

/** Forgets a trial's calls and closes it. Its row stays as the fence for late writers. Idempotent, also for an unknown trial. */
export async function deleteTrial(db: Database, input: { trialId: string }): Promise<void> {
  const { trialId } = input;
  await db.transaction(async (tx) => {
    if (!(await lockTrial(tx, trialId))) return;
    await tx.update(trials).set({ status: 'deleted' }).where(eq(trials.id, trialId));
    await tx.update(attempts).set({ endedAt: new Date() }).where(and(eq(attempts.trialId, trialId), isNull(attempts.endedAt)));
    await tx.delete(calls).where(eq(calls.trialId, trialId));
  });
}
