import { isObject, type JsonObject } from '../json.ts';
import type { ModelRequest } from './request.ts';

/** Builds the engine's request: the agent's, with the run's sampling and with all that must be recorded. */
export function engineBody(
  request: ModelRequest,
  sampled: JsonObject,
  target: { model: string | null; weightVersion: string | null },
): JsonObject {
  const { stream_options } = request.body;
  return {
    ...sampled,
    ...(target.model === null ? {} : { model: target.model }),
    ...(target.weightVersion === null ? {} : { cache_salt: cacheSalt(target.weightVersion) }),
    ...(request.stream
      ? { stream_options: { ...(isObject(stream_options) ? stream_options : {}), include_usage: true } }
      : {}),
    return_token_ids: true,
    ...logprobsOf(request, sampled),
  };
}

/** Asks for the log-probability of each sampled token, and of as many alternatives as the agent asks for. */
function logprobsOf({ route, wants }: ModelRequest, { logprobs, top_logprobs }: JsonObject): JsonObject {
  if (route === '/v1/completions') return { logprobs: typeof logprobs === 'number' ? logprobs : 0 };
  return { logprobs: true, top_logprobs: wants.logprobs ? (top_logprobs ?? 0) : 0 };
}

/**
 * vLLM accepts at most 128 characters, without `@` and `/`. An engine outside any run may have any weight version, so all of it is encoded; the
 * version is at its end, which is kept. The canary has its own salt (`gpu-workers/trialgate_gpu/engine.py`).
 */
const cacheSalt = (weightVersion: string): string => encodeURIComponent(weightVersion).slice(-128);
