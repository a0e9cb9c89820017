import { isObject, type JsonObject } from '../json.ts';
import { choicesOf } from '../../store/calls/choices.ts';

/**
 * The sampled tokens of one reply. Null if the engine did not return them or their form cannot be trusted. `mask` has the ids that could be
 * sampled at each token (vLLM's `sampling_mask`).
 */
export type SampledTokens = { completion: number[] | null; logprobs: number[] | null; mask: number[][] | null };

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

/** Tokens that were sampled under the same weight version of the engine. */
export type WeightVersionSpan = { weightVersion: string; start: number; end: number };

/** Returns null when the engine does not report versions. */
export function versionsOf({ weight_versions: spans }: JsonObject): WeightVersionSpan[] | null {
  if (!Array.isArray(spans) || spans.length === 0) return null;
  const known = spans.flatMap((span) =>
    isObject(span) && typeof span.version === 'string' && Number.isInteger(span.start) && Number.isInteger(span.end)
      ? [{ weightVersion: span.version, start: Number(span.start), end: Number(span.end) }]
      : [],
  );
  return known.length === spans.length ? known : null;
}

export type Untrainable =
  'no_token_ids' | 'length_mismatch' | 'bad_logprobs' | 'sampling_not_reproducible' | 'policy_changed';

/** Returns why these tokens cannot be trained on, judged by themselves. */
export function defectOf(prompt: number[] | null, { completion, logprobs }: SampledTokens): Untrainable | null {
  if (prompt === null || completion === null) return 'no_token_ids';
  if (logprobs?.length !== completion.length) return 'length_mismatch';
  return logprobs.every(isLogprob) ? null : 'bad_logprobs';
}

export function completionCount(usage: unknown): number | null {
  return isObject(usage) && typeof usage.completion_tokens === 'number' ? usage.completion_tokens : null;
}

/** True for ids that fit the record's 32 bits. No engine uses the sign. */
const isId = (value: unknown): value is number => typeof value === 'number' && (value | 0) === value && value >= 0;
export const idsIn = (value: unknown): number[] | null => (Array.isArray(value) && value.every(isId) ? value : null);

function maskIn(value: unknown): number[][] | null {
  if (!Array.isArray(value)) return null;
  const mask = value.flatMap((ids) => [idsIn(ids)].filter((each) => each !== null));
  return mask.length === value.length ? mask : null;
}

/** True when every sampled token has a mask that contains it. */
export function isMasked({ completion, mask }: SampledTokens): boolean {
  return (
    completion !== null && mask?.length === completion.length && completion.every((id, i) => mask[i]?.includes(id))
  );
}

/** Rounding may put a log-probability above 0 by at most this. The trainer has the same bound (`batch.py`). */
const ROUNDING = 1e-3;
const isLogprob = (value: number): boolean => Number.isFinite(Math.fround(value)) && value <= ROUNDING;
