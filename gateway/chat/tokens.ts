import { isObject } from '../json.ts';

/** What the engine says was read and sampled. Null: it did not say, or not in a form that can be trusted. */
export type Tokens = { prompt: number[] | null; completion: number[] | null; logprobs: number[] | null };

/** From a reply or a chunk, and its only choice. */
export function tokensOf(reply: Record<string, unknown>, choice: Record<string, unknown> | undefined): Tokens {
  const content = isObject(choice?.logprobs) ? choice.logprobs.content : undefined;
  return {
    prompt: integers(reply.prompt_token_ids),
    completion: integers(choice?.token_ids),
    logprobs: Array.isArray(content) ? content.map((entry) => (isObject(entry) ? Number(entry.logprob) : Number.NaN)) : null,
  };
}

/** Which weights sampled which tokens, in the engine's own words: `version` is its label then. */
export type LabelSpan = { version: string; start: number; end: number };

/** Null when the engine does not say. */
export function versionsOf(choice: Record<string, unknown> | undefined): LabelSpan[] | null {
  const spans = choice?.weight_versions;
  if (!Array.isArray(spans) || spans.length === 0) return null;
  const known = spans.flatMap((span) =>
    isObject(span) && typeof span.version === 'string' && Number.isInteger(span.start) && Number.isInteger(span.end)
      ? [{ version: span.version, start: Number(span.start), end: Number(span.end) }]
      : [],
  );
  return known.length === spans.length ? known : null;
}

export type Untrainable =
  | 'no_token_ids'
  | 'length_mismatch'
  | 'sampling_not_reproducible'
  | 'policy_changed';

/** Why these tokens cannot be trained on, judged by themselves. `counted`: the engine's own count of what it sampled. */
export function defectOf({ prompt, completion, logprobs }: Tokens, counted: number | null): Untrainable | null {
  if (prompt === null || completion === null) return 'no_token_ids';
  if (logprobs === null || logprobs.length !== completion.length || !logprobs.every(Number.isFinite)) return 'length_mismatch';
  return counted !== null && counted !== completion.length ? 'length_mismatch' : null;
}

export function completionCount(usage: unknown): number | null {
  return isObject(usage) && typeof usage.completion_tokens === 'number' ? usage.completion_tokens : null;
}

const integers = (value: unknown): number[] | null =>
  Array.isArray(value) && value.every((id) => Number.isInteger(id)) ? value : null;
