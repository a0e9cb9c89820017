import { z } from 'zod';
import { routeAt } from '../paths.ts';
import { openai } from './openai.ts';
import { readRequest, requestWith } from './read-request.ts';
import type { Protocol } from '../protocol.ts';

const id = z.int().min(0);
const ONE = 'a prompt is a text or a list of token ids; send one prompt a request: each is a call of the trial';
const shape = requestWith({
  prompt: z.union([z.string(), z.array(id).min(1), z.tuple([z.string()]), z.tuple([z.array(id).min(1)])], ONE),
});

/** OpenAI's text completions. */
export const completions: Protocol = {
  ...openai,
  name: 'completions',
  ...routeAt('/v1/completions'),
  parse: ({ bytes }) => {
    const request = readRequest(bytes, { kind: 'text', shape, protocol: completions });
    return { ...request, body: { ...request.body, prompt: onlyPrompt(request.body.prompt) } };
  },
};

const onlyPrompt = (prompt: unknown): unknown =>
  Array.isArray(prompt) && prompt.length === 1 && typeof prompt[0] !== 'number' ? prompt[0] : prompt;
