import { gemini } from './gemini/gemini.ts';
import { chatCompletions } from './openai/chat-completions.ts';
import { completions } from './openai/completions.ts';
import { messages } from './messages/messages.ts';
import type { Protocol } from './protocol.ts';
import { responses } from './responses/responses.ts';

export const PROTOCOLS: readonly Protocol[] = [chatCompletions, completions, messages, responses, gemini];

/** The headers besides `Authorization` in which a key may come. */
export const KEY_HEADERS: readonly string[] = PROTOCOLS.flatMap(({ keyHeader }) => keyHeader ?? []);

/** Returns the protocol of a request's path, or null when it is not a model's route. */
export const protocolOf = (path: string): Protocol | null =>
  PROTOCOLS.find((protocol) => protocol.serves(path)) ?? null;
