import { chatCompletions } from './chat-completions.ts';
import { completions } from './completions.ts';
import { messages } from './messages/messages.ts';
import type { Protocol } from './protocol.ts';
import { responses } from './responses/responses.ts';

export const PROTOCOLS: readonly Protocol[] = [chatCompletions, completions, messages, responses];

/** Returns the protocol of a request's path, or null when it is not a model's route. */
export const protocolOf = (path: string): Protocol | null =>
  PROTOCOLS.find((protocol) => path.includes(protocol.path) || path.endsWith(protocol.path.slice('/v1'.length))) ??
  null;
