import type { TrialNow } from '../store/queries/find-trials.ts';
import { Failure } from './failure.ts';

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
export function allowance(trial: TrialNow, inFlight: number): Allowance {
  const { calls, tokens, seconds } = trial.budgets;
  const out =
    calls !== undefined && trial.usedCalls + inFlight >= calls ? `${calls} calls`
    : tokens !== undefined && trial.usedTokens >= tokens ? `${tokens} tokens`
    : seconds !== undefined && trial.seconds >= seconds ? `${seconds} seconds`
    : null;
  const tokensLeft = tokens === undefined ? null : Math.max(tokens - trial.usedTokens, 1);
  if (out === null) return { tokensLeft, refusal: null };
  const failure = new Failure(429, 'budget_exhausted', `the trial's budget of ${out} is used up`, { retryable: false });
  return { tokensLeft, refusal: { failure, first: trial.exhausted === null } };
}
