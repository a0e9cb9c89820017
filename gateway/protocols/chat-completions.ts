import { z } from 'zod';
import { readRequest } from '../chat/request.ts';
import { openai } from './openai.ts';
import type { Protocol } from './protocol.ts';

const PATH = '/v1/chat/completions';
const shape = z.looseObject({ messages: z.array(z.looseObject({ role: z.string() })).min(1, 'at least one message is needed') });

/** OpenAI's chat completions, which are vLLM's. */
export const chatCompletions: Protocol = {
  ...openai,
  name: 'chat_completions',
  path: PATH,
  parse: (bytes) => readRequest(bytes, { route: PATH, shape, protocol: chatCompletions }),
};
