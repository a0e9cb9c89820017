import { contextExceeded } from './engine-failed.ts';
import type { Replica } from './replica.ts';

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
