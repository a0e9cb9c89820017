import { eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { trials } from '../schema.ts';
import { lockTrial, type TrialRow } from './transaction.ts';

/**
 * Stores the reward that an agent outside any run reports for itself. `attempt` is the reporting one; absent means the current one.
 * @throws TrialgateError `reward_refused` for a trial of a run, whose rewards only its verifier gives (invariant 6), and for a second,
 * different number
 */
export async function reportReward(
  db: Database,
  input: { trialId: string; attempt?: number; reward: number },
): Promise<TrialRow> {
  const { trialId, attempt, reward } = input;
  return db.transaction(async (tx) => {
    const trial = await lockTrial(tx, trialId);
    if (!trial || trial.status === 'deleted') throw new TrialgateError('not_found', `trial ${trialId} is unknown`);
    if (attempt !== undefined && attempt !== trial.attempt) {
      throw new TrialgateError('attempt_closed', `trial ${trialId} is at attempt ${trial.attempt}, not ${attempt}`);
    }
    if (trial.runId !== null)
      throw new TrialgateError(
        'reward_refused',
        `trial ${trialId} belongs to run ${trial.runId}: only its verifier gives it rewards (with \`rollouts: external\` the run's key does, at /runs/{run}/trials/{trial}/reward)`,
      );
    if (trial.reportedReward === reward) return trial;
    if (trial.reportedReward !== null)
      throw new TrialgateError(
        'reward_refused',
        `trial ${trialId} already has the reward ${trial.reportedReward}, which cannot change`,
      );
    await tx.update(trials).set({ reportedReward: reward }).where(eq(trials.id, trialId));
    return { ...trial, reportedReward: reward };
  });
}
