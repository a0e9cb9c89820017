import { LEASE_SECONDS } from '../../store/queries/calls-under-way.ts';
import type { TrialNow } from '../../store/queries/find-trials.ts';
import {
  removeReservation,
  renewReservation,
  reserveCall,
  type ReservationRequest,
} from '../../store/queries/reserve-call.ts';
import type { ModelRequest } from '../protocols/model-request.ts';
import { tokenLimit } from './sampling/sampling.ts';
import { attemptEnded, clientGone, Failure, shuttingDown } from '../failure.ts';
import type { CallDeps } from './deps.ts';
import { withStoreRetry } from '../with-store-retry.ts';
import { sleep } from '../../core/sleep.ts';
import { BytesUsedUp, hasBytesLeft } from './budgets/stored-bytes.ts';
import { raceAbort } from '../../core/race-abort.ts';

export type Allowance = {
  /** The trial's row when this was decided. */
  now: TrialNow;
  /** The reservation of the call while it is under way. Null when no budget of the trial could be exceeded by concurrent calls. */
  reservation: Reservation | null;
  /** The time that replies may still take, and why they end after it. Null without a budget of seconds. */
  timeLeft: { ms: number; failure: Failure } | null;
  /** The budget that is used up. `first` is true when the agent hears of it for the first time. */
  refusal: { failure: Failure; first: boolean } | null;
};

/**
 * A call's part of its trial's budgets, which ends when the call is recorded. `tokens` limits what it may sample; null without a budget of
 * tokens. `cut` says why replies that reach the limit end, if they could have been longer.
 */
export type Reservation = { trialId: string; callId: string; tokens: number | null; cut: Failure | null };

const POLL_MS = 200;

type Deps = Pick<CallDeps, 'db' | 'trials' | 'counters' | 'settings' | 'stopping'>;

/**
 * Returns what the trial's budgets leave for a call. If concurrent calls, of any gateway, have reserved the rest, it waits for at most
 * `idleMs` until they have used or released it. Until then the trial has not ended, because they may release it.
 */
export async function allowance(
  deps: Deps,
  trial: TrialNow,
  { n, maxTokens }: ModelRequest,
  signal: AbortSignal,
): Promise<Allowance> {
  const isShared = trial.budgets.calls !== undefined || trial.budgets.tokens !== undefined;
  const wish = isShared && {
    trialId: trial.id,
    attempt: trial.attempt,
    callId: crypto.randomUUID(),
    replies: n,
    tokens: tokenLimit(trial, maxTokens, n),
  };
  const deadline = Date.now() + deps.settings.idleMs;
  for (let now = trial; ; now = await readAgain(deps, trial)) {
    const { seconds } = now.budgets;
    const timeLeft =
      seconds === undefined
        ? null
        : { ms: 1000 * Math.max(seconds - now.seconds, 0), failure: usedUp(`${seconds} seconds`) };
    const out = whatIsUsedUp(now);
    if (out !== null)
      return { now, reservation: null, timeLeft, refusal: { failure: out, first: now.exhausted === null } };
    if (!wish) return { now, reservation: null, timeLeft, refusal: null };
    checkReplies(now, n);
    const reserved = hasRoom(now, wish) ? await reserve(deps, wish) : null;
    if (reserved)
      return { now, reservation: { ...wish, ...reserved, cut: cutOf(now, wish, reserved) }, timeLeft, refusal: null };
    if (Date.now() > deadline) throw othersHaveIt();
    await nextPoll(deps, signal);
  }
}

async function reserve(deps: Deps, wish: ReservationRequest): Promise<{ tokens: number | null } | null> {
  let asked: Promise<unknown> | undefined;
  try {
    return await withStoreRetry(deps, () => {
      const asking = reserveCall(deps.db, wish);
      asked = asking;
      return asking;
    });
  } catch (error) {
    // The store may still grant a reservation whose answer came too late for us.
    void releaseReservation(deps, wish, asked);
    throw error;
  }
}

/** Returns why replies end early when the reservation is smaller than the call asked for. */
function cutOf({ budgets }: TrialNow, wish: ReservationRequest, { tokens }: { tokens: number | null }): Failure | null {
  return tokens !== null && tokens < (wish.tokens ?? Infinity) ? usedUp(`${budgets.tokens} tokens`) : null;
}

async function nextPoll({ counters, stopping }: Deps, agent: AbortSignal): Promise<void> {
  counters.waiting += 1;
  try {
    await raceAbort(raceAbort(sleep(POLL_MS), agent, clientGone), stopping, shuttingDown);
  } finally {
    counters.waiting -= 1;
  }
}

async function readAgain(deps: Deps, { id, attempt }: TrialNow): Promise<TrialNow> {
  const trial = await withStoreRetry(deps, () => deps.trials.find(id));
  if (trial?.attempt !== attempt || trial.status !== 'created') throw attemptEnded(id, attempt);
  return trial;
}

function whatIsUsedUp(now: TrialNow): Failure | null {
  const { calls, tokens, seconds } = now.budgets;
  if (!hasBytesLeft(now)) return new BytesUsedUp(now);
  if (calls !== undefined && now.usedCalls >= calls) return usedUp(`${calls} calls`);
  if (tokens !== undefined && now.usedTokens >= tokens) return usedUp(`${tokens} tokens`);
  return seconds !== undefined && now.seconds >= seconds ? usedUp(`${seconds} seconds`) : null;
}

/** A reply takes at least one token. A call that asks for too many replies does not end its trial, because another may ask for fewer. */
function checkReplies({ budgets: { tokens }, usedTokens }: TrialNow, replies: number): void {
  if (tokens === undefined || usedTokens + replies <= tokens) return;
  const message = `${replies} replies take more tokens than the ${tokens - usedTokens} that are left of the trial's ${tokens}: ask for fewer`;
  throw new Failure(400, 'too_many_replies', message, { retryable: false });
}

/** True when a reservation may succeed. Asking only then saves the row's lock, which recording a call needs too. */
function hasRoom(
  { budgets: { calls, tokens }, reserved, attemptOpenedAt, seconds, ...used }: TrialNow,
  wish: ReservationRequest,
): boolean {
  const clock = attemptOpenedAt.getTime() / 1000 + seconds;
  const others = Object.entries(reserved ?? {}).flatMap(([callId, each]) =>
    callId !== wish.callId && each.until > clock ? [each.tokens] : [],
  );
  if (calls !== undefined && used.usedCalls + others.length >= calls) return false;
  if (tokens === undefined) return true;
  const left = tokens - used.usedTokens;
  return Math.min(wish.tokens ?? left, left) <= left - others.reduce((sum, each) => sum + each, 0);
}

const usedUp = (what: string) =>
  new Failure(429, 'budget_exhausted', `the trial's budget of ${what} is used up`, { retryable: false });

const othersHaveIt = () =>
  new Failure(
    429,
    'budget_reserved',
    "the rest of the trial's budgets is reserved by its calls under way: try again when they have ended",
    { headers: { 'retry-after': '5' } },
  );

/** Renews the reservation on a timer; returns a stop function. If this process dies, the reservation expires. */
export function keepReserved({ db }: CallDeps, reservation: Reservation): () => void {
  // A failed renewal loses the reservation only if another call takes it; recording then refuses the call.
  const beat = setInterval(() => void renewReservation(db, reservation).catch(() => {}), (LEASE_SECONDS * 1000) / 3);
  return () => clearInterval(beat);
}

/** Releases the reservation of a call that will not be recorded, once `asked` is over. If the store cannot be reached, the reservation expires. */
export async function releaseReservation(
  { db }: Pick<CallDeps, 'db'>,
  reservation: Pick<Reservation, 'trialId' | 'callId'>,
  asked?: Promise<unknown>,
): Promise<void> {
  await asked?.catch(() => {});
  await removeReservation(db, reservation).catch(() => {});
}
