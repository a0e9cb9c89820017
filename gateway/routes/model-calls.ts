import { Hono } from 'hono';
import { outlineOf } from '../../store/calls/outline.ts';
import type { TrialNow } from '../../store/queries/find-trials.ts';
import { claimReply, type Replay, type SameCall } from '../../store/queries/claim-reply.ts';
import { admit } from '../in-flight.ts';
import { claimOf, openClaimed, openTrialOf } from '../auth.ts';
import { allowance, keepReserved, releaseReservation } from '../budgets.ts';
import { Call } from '../chat/call.ts';
import { dispatch } from '../chat/dispatch.ts';
import { plainReply } from '../chat/plain.ts';
import type { ModelRequest } from '../chat/request.ts';
import { sampledBody } from '../chat/sampling.ts';
import { budgetExhaustedReply } from '../chat/budget-exhausted.ts';
import { streamReply } from '../chat/stream.ts';
import type { GatewayDeps, GatewayEnv } from '../deps.ts';
import { clientGone, type Failure, shuttingDown } from '../failure.ts';
import { withStoreRetry } from '../with-store-retry.ts';
import type { CallStatus } from '../../store/schema.ts';
import { sleep } from '../sleep.ts';
import { raceAbort } from '../race-abort.ts';
import { PROTOCOLS } from '../protocols/all.ts';
import { chatCompletions } from '../protocols/chat-completions.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { hasManyNodes, isHeavy } from '../heavy.ts';
import { checkAnnounced, isLarge, readBody } from '../read-body.ts';
import { replay } from '../retry/replay.ts';
import { retryOf, type Retry } from '../retry/retry.ts';
import { conversationOf } from '../token-in/messages.ts';
import { apiPaths } from './paths.ts';
import { resolveReferences } from '../resolve-references.ts';
import { reportLeftOut } from '../report-left-out.ts';
import { BytesUsedUp } from '../stored-bytes.ts';

/** The connection of the client. */
type AgentConnection = {
  signal: AbortSignal;
  cut: (() => Promise<void>) | undefined;
  delivered: () => Promise<boolean>;
};
type ReceivedRequest = ModelRequest & { size: number; client: string | null; retry: Retry };

/** Returns the paths below the trial's URL, without a trial, and with the trial at the end as some agents of chat completions add it. */
const pathsOf = ({ path }: Protocol): string[] => [
  ...apiPaths(path),
  ...(path === chatCompletions.path ? [`${path}/:trial`] : []),
];

/** Serves calls of the model in any protocol. The trial's policy answers, and each is recorded. */
export function modelCallRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  const { sameCalls } = deps;
  const underWay = new Set<Call>();
  const stop = () => underWay.forEach((call) => call.abort(shuttingDown()));
  deps.stopping.addEventListener('abort', stop);
  for (const protocol of PROTOCOLS) {
    app.on('POST', pathsOf(protocol), async (c) => {
      const { headers, signal } = c.req.raw;
      const agent = { signal, cut: c.env?.cut, delivered: c.env?.delivered ?? (async () => true) };
      const handOver = c.env?.handOver;
      const claim = claimOf(deps, c.req.param('trial'), headers);
      if (claim.attempt !== null) c.set('trial', { id: claim.trialId, attempt: claim.attempt });
      // Refuses a request without a valid key before its body is read or handed over, and one whose attempt has ended before a large body
      // is read.
      if (handOver && isHeavy(c.req.raw)) {
        if (claim.attempt === null) await openClaimed(deps, claim, headers);
        checkAnnounced(c.req.raw, deps.settings);
        return await handOver(null);
      }
      const id =
        claim.attempt === null || isLarge(c.req.raw) ? (await openClaimed(deps, claim, headers)).id : claim.trialId;
      const { hold, release } = admit(deps, id, c.req.raw);
      try {
        const { bytes, nodes } = await readBody(c.req.raw, deps.settings, hold);
        const passToHeavy =
          handOver &&
          (() => {
            release();
            return handOver(bytes);
          });
        if (passToHeavy && hasManyNodes(nodes)) return await passToHeavy();
        // Read again, because the trial's budgets may be used while a slow body comes.
        const trial = await openClaimed(deps, claim, headers);
        const retry = retryOf(headers, bytes);
        c.set('trial', trial);
        c.set('body', { size: bytes.byteLength, digest: retry.digest });
        const asked = {
          ...protocol.parse(bytes),
          size: bytes.byteLength,
          client: headers.get('user-agent')?.slice(0, LONGEST_CLIENT) ?? null,
          retry,
        };
        const request = await resolveReferences(deps, trial, asked, { hold, isLight: passToHeavy !== undefined });
        if (!request) return await passToHeavy?.();
        return await replayOrAnswer(trial, request, headers, agent, release);
      } catch (error) {
        release();
        throw error;
      }
    });
  }

  /** Answers a client's second try with the reply of a first try that was not received whole (invariant 4). */
  async function replayOrAnswer(
    trial: TrialNow,
    request: ReceivedRequest,
    headers: Headers,
    agent: AgentConnection,
    releaseAdmission: () => void,
  ): Promise<Response> {
    const { digest, key, isRetry, isPossible } = request.retry;
    if (!isPossible) return reserveAndAnswer(trial, request, agent, releaseAdmission, null);
    const { earlier, release: releaseRetry } = sameCalls.enter(
      `${trial.id} ${trial.attempt} ${digest.join()} ${key ?? ''}`,
    );
    const release = () => {
      releaseRetry();
      releaseAdmission();
    };
    if (!isRetry) return reserveAndAnswer(trial, request, agent, releaseAdmission, releaseRetry);
    try {
      await raceAbort(earlier(agent.signal), agent.signal, clientGone);
      const same = {
        trialId: trial.id,
        attempt: trial.attempt,
        digest,
        idempotencyKey: key,
        withIds: request.wants.tokenIds,
      };
      const lost = await claimLost(same, agent.signal);
      if (!lost)
        return await reserveAndAnswer(
          await openTrialOf(deps, trial.id, headers),
          request,
          agent,
          releaseAdmission,
          releaseRetry,
        );
      release();
      return replay(lost, request);
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Waits for other gateways that may still deliver a reply to the same request. */
  async function claimLost(same: SameCall, agent: AbortSignal): Promise<Replay | undefined> {
    for (;;) {
      await withStoreRetry(deps, () => deps.deliveries.flush());
      const found = await withStoreRetry(deps, () => claimReply(deps.db, same));
      if (found !== 'under_way') return found;
      await raceAbort(sleep(CLAIM_POLL_MS), agent, clientGone);
    }
  }

  /** `releaseRetry` is called when the reply was delivered or lost. It is null for a call that its client never marks as a retry. */
  async function reserveAndAnswer(
    trial: TrialNow,
    request: ReceivedRequest,
    agent: AgentConnection,
    releaseAdmission: () => void,
    releaseRetry: (() => void) | null,
  ): Promise<Response> {
    try {
      const { leftOut = [] } = request;
      const outline = outlineOf({
        ...request.body,
        ...request.kept,
        ...(leftOut.length > 0 ? { left_out: leftOut } : {}),
      });
      const conversation = conversationOf(request.body, request.kept ? {} : outline.lists);
      const { now, reservation, timeLeft, refusal } = await allowance(deps, trial, request, agent.signal);
      // The calls that it waited for are recorded now.
      const state = await withStoreRetry(deps, () =>
        deps.conversations.find({ ...now, trialId: trial.id }, conversation),
      ).catch((error: unknown) => {
        if (reservation) void releaseReservation(deps, reservation);
        throw error;
      });
      reportLeftOut(
        deps,
        trial.id,
        leftOut.filter((_, i) => !state.known.has(outline.lists.left_out?.[i]?.digest ?? '')),
      );
      const callRequest = { ...request, outline, conversation, state };
      const newCall = () =>
        new Call(deps, trial, callRequest, sampledBody(request, trial, reservation?.tokens ?? null), reservation);
      if (refusal && deps.settings.budgetEnd === 'refuse') {
        if (refusal.first) await newCall().fail(refusal.failure);
        throw refusal.failure;
      }
      const call = newCall();
      underWay.add(call);
      deps.counters.inFlight += 1;
      const stopRenewing = reservation && keepReserved(deps, reservation);
      const timer = timeLeft && !refusal ? endAfter(call, timeLeft) : null;
      const ended = Promise.withResolvers<CallStatus>();
      if (releaseRetry)
        void deps.deliveries.track(call.id, outcomeOf(ended.promise, agent.delivered())).then(releaseRetry);
      call.onEnd = (status) => {
        ended.resolve(status);
        if (timer) clearTimeout(timer);
        stopRenewing?.();
        underWay.delete(call);
        deps.counters.inFlight -= 1;
        releaseAdmission();
      };
      if (deps.stopping.aborted) stop();
      if (refusal)
        return await budgetExhaustedReply(call, refusal.failure, {
          isRecorded: refusal.first || !(refusal.failure instanceof BytesUsedUp),
        });
      call.follow(agent.signal);
      return await answer(deps, call, agent);
    } catch (error) {
      releaseAdmission();
      releaseRetry?.();
      throw error;
    }
  }

  /** Ends a call when the time is up: by the reply's length where the agent may see that. */
  function endAfter(call: Call, { ms, failure }: { ms: number; failure: Failure }) {
    const end = () => (deps.settings.budgetEnd === 'length' ? call.runOut(failure) : call.abort(failure));
    return ms > LONGEST_TIMER ? null : setTimeout(end, ms);
  }
  return app;
}

/** Resolves to true when the agent received the whole reply, and to null when no reply was recorded. */
async function outcomeOf(ended: Promise<CallStatus>, delivered: Promise<boolean>): Promise<boolean | null> {
  return (await ended) === 'completed' ? delivered : null;
}

const CLAIM_POLL_MS = 100;

/** The most characters of a client's name that are recorded. */
const LONGEST_CLIENT = 200;

/** A longer timer would fire at once. Such a budget is checked when the next call comes. */
const LONGEST_TIMER = 2 ** 31 - 1;

/**
 * Waits a while for a stream's first words, so that an earlier failure has a status of its own. Then the head is sent, and the agent gets
 * keep-alive comments.
 */
async function waitAtMost(ms: number, dispatched: Promise<unknown>): Promise<void> {
  const waited = Promise.withResolvers<void>();
  const timer = setTimeout(waited.resolve, ms);
  dispatched.catch(() => {});
  await Promise.race([dispatched, waited.promise]).finally(() => clearTimeout(timer));
}

async function answer(deps: GatewayDeps, call: Call, { cut }: AgentConnection): Promise<Response> {
  try {
    const dispatched = dispatch(deps, call);
    if (!call.request.stream) return await plainReply(call, await dispatched);
    const { keepAliveMs } = deps.settings;
    await waitAtMost(keepAliveMs, dispatched);
    return streamReply(call, dispatched, { keepAliveMs, cut });
  } catch (error) {
    const failure = call.failureOf(error);
    if (failure === call.budgetExhausted) return budgetExhaustedReply(call, failure);
    call.abort(failure);
    await call.fail(failure);
    failure.headers['x-trialgate-call'] = call.id;
    throw failure;
  }
}
