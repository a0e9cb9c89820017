import { completeTrial } from '../store/queries/complete-trial.ts';
import type { Deps } from './deps.ts';
import { VerifierError } from './sandbox/errors.ts';
import { isolation } from './sandbox/isolation.ts';
import { verify } from './sandbox/verify.ts';
import { whileHeartbeating } from './while-heartbeating.ts';

export type TrialVerdict = {
  /** Null: what the agent's end was decides. */
  outcome: 'verifier_error' | null;
  reason?: string;
  rewards?: Record<string, number>;
  seconds: Record<string, number>;
};

/** Closes the trial's record, then judges what its agent left, in a clean place. The sandbox is gone afterwards. */
export const verifyTrial =
  (deps: Deps) =>
  async (input: { trialId: string; attempt: number }): Promise<TrialVerdict> => {
    await completeTrial(deps.db, input);
    const start = performance.now();
    const elapsed = () => ({ verify: (performance.now() - start) / 1000 });
    try {
      const verdict = await deps.sandboxes.use(input, ({ sandbox, task }) =>
        whileHeartbeating(async (signal) => verify({ task, sandbox, isolation: await isolation(), signal })),
      );
      if (!verdict) throw new Error('this worker does not hold the sandbox');
      return { outcome: null, rewards: verdict.rewards, seconds: elapsed() };
    } catch (error) {
      if (!(error instanceof VerifierError)) throw error;
      return { outcome: 'verifier_error', reason: error.message, seconds: elapsed() };
    } finally {
      await deps.sandboxes.close(input);
    }
  };
