import type { JsonObject } from '../../json.ts';
import { boundedForMask, sampledFromBy } from '../sampled-from.ts';

export const sampledFrom = sampledFromBy({
  exclusions: ['bad_words', 'allowed_token_ids', 'min_tokens'],
  changes: ['logit_bias', 'logits_processors', 'use_beam_search', 'vllm_xargs'],
});

/**
 * Returns the request's fields as an engine with sampling masks accepts them. Such an engine refuses temperature 0, and a single possible
 * id makes the choice just as certain.
 */
export const forMask = (sampled: JsonObject): JsonObject =>
  sampled.temperature === 0 ? { ...sampled, temperature: 1, top_k: 1 } : boundedForMask(sampled);
