import { isObject } from '../json.ts';
import type { TokenEngine } from '../testing/token-engine.ts';
import type { Client } from './client.ts';

/** The toy engine says what the client needs to go on, a text a turn of its conversation; beside that a few words. */
export function play(engine: TokenEngine, { says, bringsTools }: Pick<Client, 'says' | 'bringsTools'>): void {
  // Agents bring long prompts, and a toy token is a letter or two.
  engine.context = 10_000_000;
  /** Some begin with examples of what an assistant says. */
  let examples: number | null = null;
  engine.answer = ({ messages, tools }) => {
    if (bringsTools && !hasTools(tools)) return { text: 'beside it' };
    const spoken = messages.filter((message) => isObject(message) && message.role === 'assistant').length;
    examples ??= spoken;
    return { text: says[Math.max(0, spoken - examples)] ?? says.at(-1) ?? '' };
  };
}

const hasTools = (tools: unknown): boolean => Array.isArray(tools) && tools.length > 0;
