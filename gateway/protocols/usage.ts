import { isObject } from '../json.ts';

/** The engine's own counts of a call's tokens. */
export type Usage = { prompt: number; completion: number; cached: number | null; reasoning: number };

export function usageOf(usage: unknown, promptTokens: number | null = null): Usage {
  const counts = isObject(usage) ? usage : {};
  return {
    prompt: numberIn(counts, 'prompt_tokens') ?? promptTokens ?? 0,
    completion: numberIn(counts, 'completion_tokens') ?? 0,
    cached: numberIn(counts.prompt_tokens_details, 'cached_tokens'),
    reasoning: numberIn(counts.completion_tokens_details, 'reasoning_tokens') ?? 0,
  };
}

function numberIn(counts: unknown, key: string): number | null {
  const value = isObject(counts) ? counts[key] : null;
  return typeof value === 'number' ? value : null;
}
