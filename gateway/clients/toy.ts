import { isObject } from '../json.ts';
import type { TokenEngine } from '../testing/token-engine.ts';
import type { Client } from './client.ts';

/** The toy engine says what the client needs to go on: a turn's text by how often the assistant has spoken; beside the conversation a few words. */
export function play(engine: TokenEngine, { says, bringsTools }: Pick<Client, 'says' | 'bringsTools'>): void {
  // Agents bring long prompts, and a toy token is a letter or two.
  engine.context = 10_000_000;
  engine.answer = ({ messages, tools }) => {
    if (bringsTools && !hasTools(tools)) return { text: 'beside it' };
    const turn = messages.filter((message) => isObject(message) && message.role === 'assistant').length;
    return { text: says[turn] ?? says.at(-1) ?? '' };
  };
}

const hasTools = (tools: unknown): boolean => Array.isArray(tools) && tools.length > 0;
