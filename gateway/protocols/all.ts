import { chatCompletions } from './chat-completions.ts';
import { completions } from './completions.ts';
import type { Protocol } from './protocol.ts';

export const PROTOCOLS: readonly Protocol[] = [chatCompletions, completions];

/** The protocol of a request's path; null when it is none of a model's routes. */
export const protocolOf = (path: string): Protocol | null => PROTOCOLS.find((protocol) => path.endsWith(protocol.path)) ?? null;
