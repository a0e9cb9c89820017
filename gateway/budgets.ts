import type { TrialNow } from '../store/queries/find-trials.ts';
import { Failure } from './failure.ts';

export type Allowance = {
  /** How many more tokens may be sampled; null without a budget. */
  tokensLeft: number | null;
  /** How much longer replies may take, and why they end then; null without a budget. */
  timeLeft: { ms: number; failure: Failure } | null;
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
  const timeLeft = seconds === undefined ? null : { ms: 1000 * Math.max(seconds - trial.seconds, 0), failure: usedUp(`${seconds} seconds`) };
  return { tokensLeft, timeLeft, refusal: out === null ? null : { failure: usedUp(out), first: trial.exhausted === null } };
}

const usedUp = (what: string) => new Failure(429, 'budget_exhausted', `the trial's budget of ${what} is used up`, { retryable: false });
