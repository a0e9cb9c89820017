import type { TrialNow } from '../../store/queries/find-trials.ts';
import { budgetExhaustedBody } from './reply/budget-exhausted.ts';
import { Call, NO_PROGRESS } from './call.ts';
import { CallsUnderWay } from './calls-under-way.ts';
import type { CallDeps } from './deps.ts';
import { Generation } from './generate.ts';
import { identify, locate, type CallRequest } from './identify.ts';
import { plainReply } from './reply/plain-reply.ts';
import type { ReceivedCall } from './received.ts';
import { Recording } from './record.ts';
import { enterTry, lostReply, replay } from './replay.ts';
import { budgetExhaustedReply } from './reply/reply-of-failure.ts';
import { reportLongCall } from './report-long-call.ts';
import { allowance, releaseReservation, type Allowance } from './reserve.ts';
import { sampledBody } from './sampling/sampling.ts';
import { BytesUsedUp } from './budgets/stored-bytes.ts';
import { streamReply } from './reply/stream-reply.ts';
import { wholeReply } from './reply/whole-reply.ts';

/** Answers calls of the model. Each goes through the stages in this order, and each stage returns what it found. */
export function callPipeline(deps: CallDeps): (received: ReceivedCall) => Promise<Response> {
  const underWay = new CallsUnderWay(deps);
  return async (received) => {
    const { request, agent, release } = received;
    const tries = enterTry(deps, received);
    try {
      // replay: a retry gets the reply that its first try did not receive.
      const lost = tries && request.retry.isRetry ? await lostReply(deps, received, tries) : undefined;
      if (lost) {
        release();
        tries?.release();
        return replay(lost, request);
      }
      const trial = tries && request.retry.isRetry ? await received.reopen() : received.trial;
      // identify: names the request's contents and its history.
      const identified = identify(request);
      // reserve: takes the call's part of the trial's budgets. It may wait for other calls of the trial.
      const reserved = await allowance(deps, trial, request, agent.signal);
      // identify: finds the recorded call that it continues. The calls that it waited for are recorded now.
      const located = await locate(deps, reserved.now, identified).catch((error: unknown) => {
        if (reserved.reservation) void releaseReservation(deps, reserved.reservation);
        throw error;
      });
      const begin = () => newCall(deps, trial, located, reserved);
      if (reserved.refusal && deps.settings.budgetEnd === 'refuse') return await refuse(deps, begin, reserved.refusal);
      const call = begin();
      underWay.enter(call, received, { tries, reserved });
      const recording = new Recording(deps, call);
      if (reserved.refusal) return await emptyReply(call, recording, reserved.refusal);
      call.follow(agent.signal);
      // place, generate: gets a replica with the right weights, and asks it for the answer.
      const generation = new Generation(deps, call);
      call.follows(() => generation.progress);
      reportLongCall(deps, call);
      // record, reply: the end of the reply is sent once the call is recorded.
      return request.stream
        ? await streamReply(call, generation, recording, { keepAliveMs: deps.settings.keepAliveMs, cut: agent.cut })
        : await plainReply(call, generation, recording);
    } catch (error) {
      release();
      tries?.release();
      throw error;
    }
  };
}

const newCall = ({ counters }: CallDeps, trial: TrialNow, request: CallRequest, { reservation }: Allowance): Call =>
  new Call(counters, {
    trial,
    request,
    sampled: sampledBody(request, trial, reservation?.tokens ?? null),
    reservation,
  });

type Refusal = NonNullable<Allowance['refusal']>;

/** Throws the refusal of a call whose trial has used up a budget. The first one is recorded. */
async function refuse(deps: CallDeps, call: () => Call, { failure, first }: Refusal): Promise<never> {
  if (first) await new Recording(deps, call()).fail(failure, NO_PROGRESS);
  throw failure;
}

/** Answers such a call by an empty reply. Of a trial that may store nothing more only the first is recorded. */
async function emptyReply(call: Call, recording: Recording, { failure, first }: Refusal): Promise<Response> {
  if (first || !(failure instanceof BytesUsedUp)) return budgetExhaustedReply(call, recording, failure, NO_PROGRESS);
  recording.drop();
  return wholeReply(call.id, budgetExhaustedBody(call), call.request);
}
