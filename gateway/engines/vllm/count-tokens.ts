import type { JsonObject } from '../../json.ts';
import { adaptMessages } from '../adapt-messages.ts';
import type { Lease } from '../lease.ts';
import { countBy } from '../token-route.ts';
import { takesOf } from './takes.ts';

/** Returns the number of tokens of the engine's rendering of a chat. */
export async function countTokens({ replica, model }: Lease, prompt: JsonObject, signal: AbortSignal): Promise<number> {
  const { body } = await adaptMessages(
    replica,
    { ...prompt, ...(model === null ? {} : { model }), add_generation_prompt: true },
    takesOf(replica.connection, model),
  );
  return countBy(replica.connection, '/tokenize', body, signal);
}
