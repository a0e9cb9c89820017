import type { GatewayDeps } from '../deps.ts';
import { adaptMessages } from '../engines/adapt-messages.ts';
import type { Lease } from '../engines/pool.ts';
import { Failure } from '../failure.ts';
import { answerByIds } from '../token-in/answer-by-ids.ts';
import { raceAbort } from '../race-abort.ts';
import { ordinaryAnswer, post, type Answer } from './answer.ts';
import { reportLeftOut } from '../report-left-out.ts';
import type { Call } from './call.ts';
import { EMPTY_RESULT } from './call-result.ts';
import { engineBody } from './engine-body.ts';
import { EngineFailed } from './rejection.ts';
import { boundedForMask } from './sampling.ts';
import type { Chunk } from './token-json.ts';

/**
 * Sends the call to a replica and returns once its reply, or a stream's first chunks, are there. Until then the agent has seen nothing, so
 * another replica may take the call: a lost one is skipped for a while, and one that answered 5xx is not asked again; its answer stands if
 * there is no other. A single such answer does not show whether the request or the engine is at fault, so when no other engine is left the
 * same one is asked once more. When healthy engines answer 5xx twice, the request is at fault.
 */
export async function dispatch(deps: GatewayDeps, call: Call): Promise<Answer> {
  const { holdMs } = deps.settings;
  const caller = { id: call.trial.id, runId: call.trial.runId };
  const failed = new Set<string>();
  let lastError: EngineFailed | null = null;
  let healthyErrors = 0;
  let isRepeated = false;
  let deadline = Date.now() + holdMs;
  for (let losses = 0; ; losses++) {
    if (losses === 1) deadline = Date.now() + holdMs;
    let lease: Lease;
    try {
      lease = await deps.engines.lease(caller, lastError ? 0 : deadline, call.signal, failed);
    } catch (error) {
      if (healthyErrors !== 1 || isRepeated || call.signal.aborted) throw lastError ?? error;
      isRepeated = true;
      failed.clear();
      continue;
    }
    const { url } = lease.replica.connection;
    try {
      const answer = await ask(deps, call, lease);
      return call.request.stream ? await withFirstChunks(answer) : answer;
    } catch (error) {
      lease.release();
      if (call.signal.aborted) throw error;
      call.result = () => EMPTY_RESULT;
      if (error instanceof EngineFailed) {
        failed.add(url);
        lastError = error;
        if (error.isAnswer && (await lease.replica.isAlive())) healthyErrors += 1;
        error.fault = healthyErrors > 1 ? 'request' : 'engine';
      } else if (error instanceof Failure) throw error;
      else lease.replica.markUnavailable();
      deps.log(`call ${call.id}: engine ${url} failed: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}

async function ask(deps: GatewayDeps, call: Call, lease: Lease): Promise<Answer> {
  const { replica, weightVersion, model } = lease;
  if (deps.settings.strictModel && model !== call.request.model) throw unknownModel(call.request.model, model);
  call.lease = lease;
  // The gateway waits for slow engines. If an engine's routes for ids fail, its ordinary route may still answer.
  const traits = deps.settings.tokenIn
    ? await raceAbort(
        replica.traits(model).catch(() => null),
        call.signal,
      )
    : null;
  call.bindsTools = traits?.bindsTools ?? 'strict';
  call.inForce = traits?.masks ? boundedForMask(call.sampled) : call.sampled;
  const { body, leftOut } = await adaptMessages(
    replica,
    model,
    engineBody(call.request, call.inForce, { model, weightVersion }),
  );
  const { outline, state } = call.request;
  const fresh = leftOut.filter(
    ({ messageIndex }) => !state.known.has(outline.lists.messages?.[messageIndex]?.digest ?? ''),
  );
  reportLeftOut(
    deps,
    call.trial.id,
    fresh.map(({ feature, messageIndex }) => ({ at: `messages.${messageIndex}`, value: { type: feature } })),
  );
  return (
    (await answerByIds(call, replica, traits, body)) ??
    ordinaryAnswer(call, await post(call, replica, call.request.route, body))
  );
}

/**
 * Returns the answer once its first chunks are there. It wraps the iterator by hand, because a generator would cost each chunk of a stream
 * some microtasks more.
 */
async function withFirstChunks(answer: Answer): Promise<Answer> {
  const chunks = answer.chunks()[Symbol.asyncIterator]();
  let first: Promise<IteratorResult<Chunk[]>> | null = chunks.next();
  await first;
  const next = () => {
    const result = first ?? chunks.next();
    first = null;
    return result;
  };
  const stop = async () => (await chunks.return?.()) ?? { done: true as const, value: undefined };
  return { ...answer, chunks: () => ({ [Symbol.asyncIterator]: () => ({ next, return: stop }) }) };
}

export function unknownModel(asked: string | null, served: string | null): Failure {
  const message = `the model ${JSON.stringify(asked)} does not exist here: this trial's policy is ${JSON.stringify(served)}`;
  return new Failure(404, 'model_not_found', message, { retryable: false });
}
