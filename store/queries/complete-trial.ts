import { eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { trials } from '../schema.ts';
import { lockTrial } from './transaction.ts';

/**
 * Closes a trial whose agent is done: its calls are refused until another attempt is opened. Repeating it is harmless. `orUnknown` accepts
 * a trial that does not exist.
 */
export async function completeTrial(
  db: Database,
  input: { trialId: string; attempt?: number; orUnknown?: boolean },
): Promise<void> {
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
