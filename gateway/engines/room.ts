import { contextExceeded } from './engine-failed.ts';
import type { Replica } from './replica.ts';

/**
 * Returns a limit of sampled tokens of at most the context's length, for an engine that refuses a larger one, and cuts a smaller one to the
 * room after the prompt itself.
 */
export async function withinContext(replica: Replica, limit: number): Promise<number> {
  return Math.min(limit, (await replica.models())[0]?.contextLength ?? Infinity);
}

/**
 * Returns a limit of sampled tokens that fits after a prompt of at most `bytes`. Counts the prompt's tokens only where that may matter;
 * null: they cannot be counted.
 */
export async function cutToRoom(
  replica: Replica,
  limit: number,
  { bytes, count }: { bytes: number; count: () => Promise<number | null> },
): Promise<number> {
  const context = (await replica.models())[0]?.contextLength ?? null;
  if (context === null || limit + bytes <= context) return limit;
  const prompt = await count();
  return prompt === null ? limit : Math.min(limit, (await roomAfter(replica, prompt)) ?? limit);
}

/**
 * Returns the number of tokens that fit after a prompt of this length, or null when the context's length is not known.
 * @throws Failure when none fits
 */
export async function roomAfter(replica: Replica, prompt: number): Promise<number | null> {
  const context = (await replica.models())[0]?.contextLength ?? null;
  if (context === null) return null;
  if (context - prompt >= 1) return context - prompt;
  throw contextExceeded(
    `This model's maximum context length is ${context} tokens. However, the conversation holds ${prompt} tokens.`,
  );
}
