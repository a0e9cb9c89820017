import { completeTrial } from '../../store/queries/complete-trial.ts';
import type { Deps } from '../deps.ts';
import { VerifierError } from '../sandbox/errors.ts';
import type { Task } from '../../core/task.ts';
import { judgeTrial } from './judge-trial.ts';
import { whileHeartbeating } from '../temporal/while-heartbeating.ts';

export type TrialVerdict = {
  /** Null when the agent's end decides the outcome. */
  outcome: 'verifier_error' | null;
  reason?: string;
  rewards?: Record<string, number>;
  turnRewards?: Record<string, number[]>;
  seconds: Record<string, number>;
};

/** Limits the verifier to these seconds. */
export const limitVerifier = <T extends Task>(task: T, seconds: number): T => ({
  ...task,
  verifier: { ...task.verifier, timeoutSec: Math.min(task.verifier.timeoutSec, seconds) },
});

/** Closes the trial for calls, then verifies its agent's work in a clean sandbox. The trial's sandbox is removed afterwards. */
export const verifyTrial =
  (deps: Deps) =>
  async (input: { trialId: string; attempt: number; seconds: number }): Promise<TrialVerdict> => {
    const start = performance.now();
    const elapsed = () => ({ verify: (performance.now() - start) / 1000 });
    try {
      await completeTrial(deps.db, input);
      const verdict = await deps.sandboxes.use(input, ({ task, ...held }) =>
        whileHeartbeating((signal) =>
          judgeTrial(deps, { ...input, ...held, task: limitVerifier(task, input.seconds) }, signal),
        ),
      );
      if (!verdict) throw new Error('this worker does not have the trial’s sandbox any more');
      return {
        outcome: null,
        reason: verdict.reason,
        rewards: verdict.rewards,
        turnRewards: verdict.turnRewards,
        seconds: elapsed(),
      };
    } catch (error) {
      if (!(error instanceof VerifierError)) throw error;
      return { outcome: 'verifier_error', reason: error.message, seconds: elapsed() };
    } finally {
      await deps.sandboxes.close(input);
    }
  };
