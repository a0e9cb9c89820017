import type { Trial } from '../store/queries/transaction.ts';
import { readUsage } from '../store/queries/read-usage.ts';
import type { GatewayDeps } from './deps.ts';
import { Failure } from './failure.ts';
import { patiently } from './patiently.ts';

export type Allowance = {
  /** How many more tokens may be sampled; null without a budget. */
  tokensLeft: number | null;
  /** What is used up, and whether the agent hears it for the first time. */
  refusal: { failure: Failure; first: boolean } | null;
};

/**
 * What the trial's budgets leave for a call. `inFlight`: its other calls of now. Tokens sampled by those are not known yet,
 * so that calls side by side may together exceed a token budget by what they have under way.
 */
export async function allowance(deps: GatewayDeps, trial: Trial, inFlight: number): Promise<Allowance> {
  const { calls, tokens, seconds } = trial.budgets;
  if (calls === undefined && tokens === undefined && seconds === undefined) return { tokensLeft: null, refusal: null };
  const used = await patiently(deps, () => readUsage(deps.db, { trialId: trial.id, attempt: trial.attempt }));
  const out =
    calls !== undefined && used.calls + inFlight >= calls ? `${calls} calls`
    : tokens !== undefined && used.tokens >= tokens ? `${tokens} tokens`
    : seconds !== undefined && used.seconds >= seconds ? `${seconds} seconds`
    : null;
  const tokensLeft = tokens === undefined ? null : Math.max(tokens - used.tokens, 1);
  if (out === null) return { tokensLeft, refusal: null };
  const failure = new Failure(429, 'budget_exhausted', `the trial's budget of ${out} is used up`, { retryable: false });
  return { tokensLeft, refusal: { failure, first: used.exhausted === null } };
}
