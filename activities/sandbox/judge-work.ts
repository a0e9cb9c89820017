import { createHash } from 'node:crypto';
import { createSandbox } from './create-sandbox.ts';
import { destroySandbox } from './destroy-sandbox.ts';
import { VerifierError, type VerifierFailure } from './errors.ts';
import { verify, type Verdict, type Verification } from './verify.ts';

/** The number of times that a verifier runs before its failure counts. An outside cause rarely occurs twice. */
const TRIES: Record<VerifierFailure, number> = { killed: 3, ended_early: 2, no_reward: 1, too_much: 1 };

/**
 * Judges the agent's work even if the verifier gives no reward. A failure that the work can cause gives a reward of 0, or less where the
 * untouched task earns less. Otherwise wrong answers could leave the training, or earn more, by breaking their verifier. Each try has a fresh sandbox. If the verifier still gives no reward, it runs on the
 * untouched task as a control. If the control has a valid reward, the verifier works, so the work broke it.
 * @throws VerifierError when the verifier gives the untouched task no valid reward either; SandboxError when the host failed
 */
export async function judgeWork(verification: Verification): Promise<Verdict> {
  const failure = await lastFailure(verification);
  if (!(failure instanceof VerifierError)) return failure;
  const control = await judgeUntouched(verification).catch((error: unknown) => {
    if (!(error instanceof VerifierError)) throw error;
    const ofUntouched = error.message === failure.message ? 'the same' : error.message;
    throw new VerifierError(`${failure.message}; of the untouched task: ${ofUntouched}`, failure.failure);
  });
  const rewards = rewardsOfBroken(control.rewards);
  return {
    ...control,
    rewards,
    turnRewards: undefined,
    isInDoubt: false,
    reason: `the verifier gave this work no reward, but judges the untouched task, so the work counts as ${JSON.stringify(rewards)}: ${failure.message}`,
  };
}

/** Returns the rewards of work that broke its verifier: no more than 0, and no more than no work at all earns. */
export const rewardsOfBroken = (control: Record<string, number>): Record<string, number> =>
  Object.fromEntries(Object.entries(control).map(([name, value]) => [name, Math.min(0, value)]));

/** Returns the first verdict that is certain, otherwise the result of the last try. */
async function lastFailure(verification: Verification): Promise<Verdict | VerifierError> {
  for (let tries = 1; ; tries++) {
    try {
      const verdict = await verify(verification);
      if (!verdict.isInDoubt || tries >= TRIES.killed) return verdict;
    } catch (error) {
      if (!(error instanceof VerifierError)) throw error;
      if (tries >= TRIES[error.failure]) return error;
    }
  }
}

async function judgeUntouched({ task, sandbox, backend, image, signal }: Verification): Promise<Verdict> {
  const { name, home } = sandbox;
  // The trial's own name may already have the greatest allowed length.
  const key = { trialId: `control-${createHash('sha256').update(name).digest('hex').slice(0, 32)}`, attempt: 1 };
  try {
    const untouched = await createSandbox({ home, ...key, task, backend, image: sandbox.image, signal });
    return await verify({ task, sandbox: untouched, backend, image, signal });
  } finally {
    await destroySandbox({ home, ...key, backend });
  }
}
