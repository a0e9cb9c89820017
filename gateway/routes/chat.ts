import { Hono } from 'hono';
import { openTrialOf } from '../auth.ts';
import { allowance } from '../budgets.ts';
import { Call } from '../chat/call.ts';
import { dispatch } from '../chat/dispatch.ts';
import { plainReply } from '../chat/plain.ts';
import { parseChatRequest } from '../chat/request.ts';
import { forceSampling } from '../chat/sampling.ts';
import { spentReply } from '../chat/spent.ts';
import { streamReply } from '../chat/stream.ts';
import type { GatewayDeps } from '../deps.ts';
import { readBody } from '../read-body.ts';
import { InFlight } from '../in-flight.ts';
import { patiently } from '../patiently.ts';
import { replay } from '../retry/replay.ts';
import { retryOf } from '../retry/retry.ts';
import { findCompletedCall } from '../../store/queries/find-completed-call.ts';
import { conversationOf } from '../token-in/messages.ts';

/** OpenAI's chat completions, answered by the trial's policy and recorded. */
export function chatRoutes(deps: GatewayDeps): Hono {
  const app = new Hono();
  const inFlight = new InFlight();
  app.post('/:trial/v1/chat/completions', async (c) => {
    const trial = await openTrialOf(deps, c.req.param('trial'), c.req.raw.headers);
    const request = parseChatRequest(await readBody(c.req.raw, deps.settings.maxBodyBytes));
    const retry = await retryOf(c.req.raw.headers, request.bytes);
    const { earlier, leave } = inFlight.enter(trial.id, `${trial.id} ${trial.attempt} ${retry.digest} ${retry.key}`);
    try {
      if (retry.isRetry) {
        await earlier;
        const same = { trialId: trial.id, attempt: trial.attempt, digest: retry.digest, idempotencyKey: retry.key };
        const done = await patiently(deps, () => findCompletedCall(deps.db, same));
        if (done) {
          leave();
          return await replay(done, request);
        }
      }
      const { tokensLeft, refusal } = await allowance(deps, trial, inFlight.count(trial.id) - 1);
      const conversation = conversationOf(request.body);
      const past = await patiently(deps, () => deps.conversations.find({ ...trial, trialId: trial.id }, conversation));
      const place = () => new Call(deps, trial, { ...request, conversation, past, retry }, forceSampling(request, trial, tokensLeft));
      if (refusal) {
        if (refusal.first) await place().fail(refusal.failure);
        if (deps.settings.budgetEnd === 'refuse') throw refusal.failure;
        leave();
        return await spentReply(request);
      }
      const call = place();
      call.follow(c.req.raw.signal);
      call.onEnd = leave;
      return await answer(deps, call);
    } catch (error) {
      leave();
      throw error;
    }
  });
  return app;
}

async function answer(deps: GatewayDeps, call: Call): Promise<Response> {
  try {
    const answered = await dispatch(deps, call);
    return call.request.stream ? streamReply(call, answered) : await plainReply(call, answered);
  } catch (error) {
    const failure = call.failureOf(error);
    call.abort(failure);
    await call.fail(failure);
    throw failure;
  }
}
