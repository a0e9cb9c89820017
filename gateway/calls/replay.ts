import { raceAbort } from '../../core/race-abort.ts';
import { sleep } from '../../core/sleep.ts';
import { claimReply, type Replay } from '../../store/queries/claim-reply.ts';
import { withIds } from '../engines/completion.ts';
import { clientGone } from '../failure.ts';
import type { ModelRequest } from '../protocols/model-request.ts';
import type { SameCall } from '../record/same-calls.ts';
import { withStoreRetry } from '../with-store-retry.ts';
import type { CallDeps } from './deps.ts';
import type { ReceivedCall } from './received.ts';
import { wholeReply } from './reply/whole-reply.ts';

const CLAIM_POLL_MS = 100;

/** Registers the call among equal ones. Returns null for a call whose client does not mark its retries. */
export function enterTry({ sameCalls }: CallDeps, { trial, request }: ReceivedCall): SameCall | null {
  const { digest, key, isPossible } = request.retry;
  return isPossible ? sameCalls.enter(`${trial.id} ${trial.attempt} ${digest.join()} ${key ?? ''}`) : null;
}

/** Waits for the earlier tries of a retry. Returns the reply of one that was not received whole, if there is one (invariant 4). */
export async function lostReply(
  deps: CallDeps,
  { trial, request, agent }: ReceivedCall,
  tries: SameCall,
): Promise<Replay | undefined> {
  const { digest, key } = request.retry;
  await raceAbort(tries.earlier(agent.signal), agent.signal, clientGone);
  const same = {
    trialId: trial.id,
    attempt: trial.attempt,
    digest,
    idempotencyKey: key,
    withIds: request.wants.tokenIds,
  };
  for (;;) {
    await withStoreRetry(deps, () => deps.deliveries.flush());
    const found = await withStoreRetry(deps, () => claimReply(deps.db, same));
    if (found !== 'under_way') return found;
    // Another gateway may still deliver a reply to the same request.
    await raceAbort(sleep(CLAIM_POLL_MS), agent.signal, clientGone);
  }
}

/** Answers with the reply of a completed call. Makes and records no new call. */
export function replay({ id, reply, prompt, completions }: Replay, request: ModelRequest): Response {
  const whole = request.wants.tokenIds ? withIds(reply, request.kind, prompt, completions) : reply;
  return wholeReply(id, whole, request, { 'x-trialgate-replay': 'true' });
}
