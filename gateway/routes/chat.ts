import { Hono } from 'hono';
import { openTrialOf } from '../auth.ts';
import { allowance } from '../budgets.ts';
import { Call } from '../chat/call.ts';
import { dispatch } from '../chat/dispatch.ts';
import { plainReply } from '../chat/plain.ts';
import { badReply, rejection } from '../chat/rejection.ts';
import { parseChatRequest } from '../chat/request.ts';
import { forceSampling } from '../chat/sampling.ts';
import { streamReply } from '../chat/stream.ts';
import type { GatewayDeps } from '../deps.ts';
import { readBody } from '../read-body.ts';
import { InFlight } from '../in-flight.ts';

/** OpenAI's chat completions, answered by the trial's policy and recorded. */
export function chatRoutes(deps: GatewayDeps): Hono {
  const app = new Hono();
  const inFlight = new InFlight();
  app.post('/:trial/v1/chat/completions', async (c) => {
    const trial = await openTrialOf(deps, c.req.param('trial'), c.req.raw.headers);
    const request = parseChatRequest(await readBody(c.req.raw, deps.settings.maxBodyBytes));
    const leave = inFlight.enter(trial.id);
    try {
      const { tokensLeft, refusal } = await allowance(deps, trial, inFlight.count(trial.id) - 1);
      const call = new Call(deps, trial, request, forceSampling(request, trial, tokensLeft));
      if (refusal) {
        if (refusal.first) await call.fail(refusal.failure);
        throw refusal.failure;
      }
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
    const reply = await dispatch(deps, call);
    if (reply.status !== 200) throw await rejection(call, reply);
    if (!call.request.stream) return await plainReply(call, reply);
    if (!reply.contentType.startsWith('text/event-stream')) throw badReply(`is ${reply.contentType || 'untyped'}, not a stream`);
    return streamReply(call, reply);
  } catch (error) {
    const failure = call.failureOf(error);
    call.abort(failure);
    await call.fail(failure);
    throw failure;
  }
}
