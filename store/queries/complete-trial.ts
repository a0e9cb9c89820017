import { eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { TrialgateError } from '../errors.ts';
import { trials } from '../schema.ts';
import { lockTrial } from './transaction.ts';

/** The agent is done: no more calls are accepted, until another attempt is opened or the trial is sealed. Idempotent. `orUnknown`: also for a trial that is not there. */
export async function completeTrial(db: Database, input: { trialId: string; attempt?: number; orUnknown?: boolean }): Promise<void> {
  const { trialId, attempt, orUnknown = false } = input;
  await db.transaction(async (tx) => {
    const trial = await lockTrial(tx, trialId);
    const isKnown = trial && trial.status !== 'deleted';
    if (!isKnown && orUnknown) return;
    if (!isKnown) throw new TrialgateError('not_found', `trial ${trialId} is unknown`);
    if (attempt !== undefined && attempt !== trial.attempt) {
      throw new TrialgateError('attempt_closed', `trial ${trialId} is at attempt ${trial.attempt}, not ${attempt}`);
    }
    if (trial.status === 'completed') return;
    await tx.update(trials).set({ status: 'completed', completedAt: new Date() }).where(eq(trials.id, trialId));
  });
}
