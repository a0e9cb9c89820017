import type { JsonObject } from '../../json.ts';
import type { CompletionKind } from '../completion.ts';
import type { Logprobs, Triple } from './output.ts';

const bytesOf = (token: string): number[] => [...new TextEncoder().encode(token)];

const entryOf = ({ token, logprob }: Triple): JsonObject => ({ token, logprob, bytes: bytesOf(token) });

/** Writes log-probabilities as completions have them. `at` is the length of the text before them. */
export function shownLogprobs(kind: CompletionKind, { sampled, top }: Logprobs, at: number): JsonObject {
  if (kind === 'chat')
    return {
      content: sampled.map((triple, i) => ({ ...entryOf(triple), top_logprobs: (top[i] ?? []).map(entryOf) })),
    };
  let offset = at;
  const text_offset = sampled.map(({ token }) => {
    const start = offset;
    offset += token.length;
    return start;
  });
  return {
    tokens: sampled.map(({ token }) => token),
    token_logprobs: sampled.map(({ logprob }) => logprob),
    top_logprobs: sampled.map((_, i) =>
      Object.fromEntries((top[i] ?? []).map(({ token, logprob }) => [token, logprob])),
    ),
    text_offset,
  };
}

export function usageOf(promptTokens: number, completionTokens: number, cachedTokens: unknown): JsonObject {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    ...(typeof cachedTokens === 'number' ? { prompt_tokens_details: { cached_tokens: cachedTokens } } : {}),
  };
}
