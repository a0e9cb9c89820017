import { isObject } from '../../gateway/json.ts';
import type { TokenEngine } from '../support/fakes/token-engine.ts';
import { isBeside, modeIn, type Client } from './client.ts';

/**
 * Makes the toy engine answer as the client needs it, one text for each turn of its conversation. Requests beside the conversation get a
 * few words.
 */
export function play(engine: TokenEngine, client: Pick<Client, 'says' | 'modes' | 'bringsTools'>): void {
  // Agents send long prompts, and a toy token is only a letter or two.
  engine.context = 10_000_000;
  // vLLM does the same when it parses tool calls.
  engine.bindsTools = 'strict';
  /** Some clients begin with examples of an assistant's replies. */
  const examples = new Map<string, number>();
  engine.answer = ({ messages, tools }) => {
    const mode = modeIn(client, JSON.stringify(messages));
    if (isBeside(client, mode, { tools })) return { text: 'beside it' };
    const spoken = messages.filter((message) => isObject(message) && message.role === 'assistant').length;
    const first = examples.get(mode?.name ?? '') ?? spoken;
    examples.set(mode?.name ?? '', first);
    const says = mode?.says ?? client.says;
    return { text: says[Math.max(0, spoken - first)] ?? says.at(-1) ?? '' };
  };
}
