import type { TrialNow } from '../store/queries/find-trials.ts';
import { reserveCall } from '../store/queries/reserve-call.ts';
import { attemptEnded } from './auth.ts';
import type { ModelRequest } from './chat/request.ts';
import { tokenLimit } from './chat/sampling.ts';
import type { GatewayDeps } from './deps.ts';
import { clientGone, Failure } from './failure.ts';
import { patiently } from './patiently.ts';
import type { Reservation } from './reservation.ts';
import { sleep } from './sleep.ts';
import { unlessAborted } from './unless-aborted.ts';

export type Allowance = {
  /** What is kept for the call while it is under way; null when none of the trial's budgets is one that calls side by side could pass. */
  reservation: Reservation | null;
  /** How much longer replies may take, and why they end then; null without a budget. */
  timeLeft: { ms: number; failure: Failure } | null;
  /** What is used up, and whether the agent hears it for the first time. */
  refusal: { failure: Failure; first: boolean } | null;
};

const POLL_MS = 200;

/**
 * What the trial's budgets leave for a call. Where other calls that are under way, of whichever gateway, have reserved what is
 * left, it waits until they have used it or given it back: that they may use it up does not end the trial.
 */
export async function allowance(deps: GatewayDeps, trial: TrialNow, { n, maxTokens }: ModelRequest, signal: AbortSignal): Promise<Allowance> {
  const isShared = trial.budgets.calls !== undefined || trial.budgets.tokens !== undefined;
  const wish = { trialId: trial.id, attempt: trial.attempt, callId: crypto.randomUUID(), replies: n, tokens: tokenLimit(trial, maxTokens, n) };
  for (let now = trial; ; now = await readAgain(deps, trial)) {
    const { seconds } = now.budgets;
    const timeLeft = seconds === undefined ? null : { ms: 1000 * Math.max(seconds - now.seconds, 0), failure: usedUp(`${seconds} seconds`) };
    const out = whatIsUsedUp(now, n);
    if (out !== null) return { reservation: null, timeLeft, refusal: { failure: usedUp(out), first: now.exhausted === null } };
    if (!isShared) return { reservation: null, timeLeft, refusal: null };
    const reserved = await patiently(deps, () => reserveCall(deps.db, wish));
    if (reserved) return { reservation: { ...wish, ...reserved }, timeLeft, refusal: null };
    await unlessAborted(sleep(POLL_MS), signal, clientGone);
  }
}

async function readAgain(deps: GatewayDeps, { id, attempt }: TrialNow): Promise<TrialNow> {
  const trial = await patiently(deps, () => deps.trials.find(id));
  if (trial?.attempt !== attempt || trial.status !== 'created') throw attemptEnded(id, attempt);
  return trial;
}

/** A reply takes a token at least. */
function whatIsUsedUp({ budgets: { calls, tokens, seconds }, ...used }: TrialNow, replies: number): string | null {
  if (calls !== undefined && used.usedCalls >= calls) return `${calls} calls`;
  if (tokens !== undefined && used.usedTokens + replies > tokens) return `${tokens} tokens`;
  return seconds !== undefined && used.seconds >= seconds ? `${seconds} seconds` : null;
}

const usedUp = (what: string) => new Failure(429, 'budget_exhausted', `the trial's budget of ${what} is used up`, { retryable: false });
