import { z } from 'zod';
import { readRequest } from '../chat/request.ts';
import { openai } from './openai.ts';
import type { Protocol } from './protocol.ts';

const PATH = '/v1/completions';
const id = z.int().min(0);
const ONE = 'a prompt is a text or a list of token ids; send one prompt a request: each is a call of the trial';
const shape = z.looseObject({
  prompt: z.union([z.string(), z.array(id).min(1), z.tuple([z.string()]), z.tuple([z.array(id).min(1)])], ONE),
});

/** OpenAI's text completions, in vLLM's form. */
export const completions: Protocol = {
  ...openai,
  name: 'completions',
  path: PATH,
  parse: (bytes) => {
    const request = readRequest(bytes, { route: PATH, shape, protocol: completions });
    return { ...request, body: { ...request.body, prompt: onlyPrompt(request.body.prompt) } };
  },
};

const onlyPrompt = (prompt: unknown): unknown =>
  Array.isArray(prompt) && prompt.length === 1 && typeof prompt[0] !== 'number' ? prompt[0] : prompt;
