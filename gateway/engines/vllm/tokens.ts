import { isObject, type JsonObject } from '../../json.ts';
import { choicesOf } from '../../../store/calls/choices.ts';
import type { SampledTokens, WeightVersionSpan } from '../call-result.ts';
import { idsIn, maskIn, spansIn } from '../read-sampled.ts';

/** Returns the prompt's ids, which chat completions name once and text completions in each choice. */
export function promptOf(reply: JsonObject): number[] | null {
  return idsIn(reply.prompt_token_ids ?? choicesOf(reply)[0]?.prompt_token_ids);
}

/** Reads the sampled tokens of a choice, of a reply or a chunk, of a chat or a text completion. */
export function sampledOf({ token_ids, logprobs, sampling_mask }: JsonObject): SampledTokens {
  const entries = isObject(logprobs) ? (logprobs.content ?? logprobs.token_logprobs) : undefined;
  return {
    completion: idsIn(token_ids),
    logprobs: Array.isArray(entries) ? entries.map(logprobOf) : null,
    mask: maskIn(sampling_mask),
  };
}

function logprobOf(entry: unknown): number {
  const value = isObject(entry) ? entry.logprob : entry;
  return typeof value === 'number' ? value : Number.NaN;
}

export const versionsOf = ({ weight_versions: spans }: JsonObject): WeightVersionSpan[] | null => spansIn(spans);
