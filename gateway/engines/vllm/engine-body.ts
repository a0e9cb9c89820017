import type { JsonObject } from '../../json.ts';
import { withUsage } from '../completion.ts';
import type { GenerationRequest } from '../engine.ts';

/** Builds the engine's request: the agent's, with the run's sampling and with all that must be recorded. */
export function engineBody(
  request: Pick<GenerationRequest, 'kind' | 'body' | 'stream' | 'wants'>,
  target: { model: string | null; weightVersion: string | null },
): JsonObject {
  return {
    ...request.body,
    ...(target.model === null ? {} : { model: target.model }),
    ...(target.weightVersion === null ? {} : { cache_salt: cacheSalt(target.weightVersion) }),
    ...(request.stream ? withUsage(request.body) : {}),
    // All of a prompt's experts are recorded, whatever part of them an agent asks for.
    ...(request.body.routed_experts_prompt_start === undefined ? {} : { routed_experts_prompt_start: 0 }),
    return_token_ids: true,
    ...logprobsOf(request),
  };
}

/** Asks for the log-probability of each sampled token, and of as many alternatives as the agent asks for. */
function logprobsOf({
  kind,
  wants,
  body: { logprobs, top_logprobs },
}: Pick<GenerationRequest, 'kind' | 'body' | 'wants'>): JsonObject {
  if (kind === 'text') return { logprobs: typeof logprobs === 'number' ? logprobs : 0 };
  return { logprobs: true, top_logprobs: wants.logprobs ? (top_logprobs ?? 0) : 0 };
}

/**
 * vLLM accepts at most 128 characters, without `@` and `/`. An engine outside any run may have any weight version, so all of it is encoded; the
 * version is at its end, which is kept. The canary has its own salt (`gpu-workers/trialgate_gpu/vllm_engine.py`).
 */
const cacheSalt = (weightVersion: string): string => encodeURIComponent(weightVersion).slice(-128);
