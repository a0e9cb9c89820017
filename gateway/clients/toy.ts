import { isObject } from '../json.ts';
import type { TokenEngine } from '../testing/token-engine.ts';
import { modeIn, type Client } from './client.ts';

/** The toy engine says what the client needs to go on, a text a turn of its conversation; beside that a few words. */
export function play(engine: TokenEngine, client: Pick<Client, 'says' | 'modes' | 'bringsTools'>): void {
  // Agents bring long prompts, and a toy token is a letter or two.
  engine.context = 10_000_000;
  /** Some begin with examples of what an assistant says. */
  const examples = new Map<string, number>();
  engine.answer = ({ messages, tools }) => {
    const mode = modeIn(client, JSON.stringify(messages));
    if (client.bringsTools && !mode?.says && !hasTools(tools)) return { text: 'beside it' };
    const spoken = messages.filter((message) => isObject(message) && message.role === 'assistant').length;
    const first = examples.get(mode?.name ?? '') ?? spoken;
    examples.set(mode?.name ?? '', first);
    const says = mode?.says ?? client.says;
    return { text: says[Math.max(0, spoken - first)] ?? says.at(-1) ?? '' };
  };
}

const hasTools = (tools: unknown): boolean => Array.isArray(tools) && tools.length > 0;
