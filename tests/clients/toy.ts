import { isObject } from '../../gateway/json.ts';
import type { TokenEngine } from '../support/fakes/token-engine.ts';
import { isBeside, modeIn, type Client, type Mode } from './client.ts';

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
  /** The first message of a user in each mode. */
  const openings = new Map<Mode, string>();
  engine.answer = ({ messages, tools }) => {
    const mode = modeIn(client, JSON.stringify(messages));
    if (isBeside(client, mode, { tools })) return { text: 'beside it' };
    if (mode?.saysLater) {
      const opening = JSON.stringify(messages.find(({ role }) => role === 'user'));
      if (!openings.has(mode)) openings.set(mode, opening);
      if (openings.get(mode) !== opening) return { text: mode.saysLater[0] ?? '' };
    }
    const spoken = messages.filter((message) => isObject(message) && message.role === 'assistant').length;
    const first = examples.get(mode?.name ?? '') ?? spoken;
    examples.set(mode?.name ?? '', first);
    const says = mode?.says ?? client.says;
    return { text: says[Math.max(0, spoken - first)] ?? says.at(-1) ?? '' };
  };
}
