import { z } from 'zod';
import { badRequest, parseBody, type JsonObject } from '../json.ts';

/** The engine's own routes, which are the agent's too. */
export const ROUTES = ['/v1/chat/completions', '/v1/completions'] as const;
export type Route = (typeof ROUTES)[number];

const id = z.int().min(0);
const PROMPT = 'a prompt is a text or a list of token ids; send one prompt a request: each is a call of the trial';
const shapes = {
  '/v1/chat/completions': z.looseObject({ messages: z.array(z.looseObject({ role: z.string() })).min(1, 'at least one message is needed') }),
  '/v1/completions': z.looseObject({
    prompt: z.union([z.string(), z.array(id).min(1), z.tuple([z.string()]), z.tuple([z.array(id).min(1)])], PROMPT),
  }),
};

/** Only what the gateway itself reads is checked; the engine judges the rest. */
const common = z.looseObject({
  model: z.string().optional(),
  stream: z.boolean().nullish(),
  n: z.int().min(1).max(128).nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
});

export type ModelRequest = {
  route: Route;
  /** As it came. */
  bytes: Uint8Array<ArrayBuffer>;
  body: JsonObject;
  model: string | null;
  stream: boolean;
  /** How many replies are asked for. */
  n: number;
  maxTokens: number | null;
  /** What the agent asked for itself; the rest of what the engine is asked for is hidden from it. */
  wants: Wants;
};
export type Wants = { logprobs: boolean; tokenIds: boolean; usage: boolean };

export function parseRequest(route: Route, bytes: Uint8Array<ArrayBuffer>): ModelRequest {
  const body = parseBody(bytes);
  const checked = common.safeParse(body);
  const [issue] = [...(shapes[route].safeParse(body).error?.issues ?? []), ...(checked.error?.issues ?? [])];
  if (issue || !checked.success) throw badRequest(`${issue?.path.join('.') || 'body'}: ${issue?.message ?? 'is not valid'}`);
  const { stream, stream_options, model, n, max_tokens, max_completion_tokens } = checked.data;
  return {
    route,
    bytes,
    body: route === '/v1/completions' ? { ...body, prompt: onlyPrompt(body.prompt) } : body,
    model: model ?? null,
    stream: stream === true,
    n: n ?? 1,
    maxTokens: max_completion_tokens ?? max_tokens ?? null,
    wants: {
      logprobs: body.logprobs === true || typeof body.logprobs === 'number',
      tokenIds: body.return_token_ids === true,
      usage: stream !== true || stream_options?.include_usage === true,
    },
  };
}

const onlyPrompt = (prompt: unknown): unknown => (Array.isArray(prompt) && prompt.length === 1 && typeof prompt[0] !== 'number' ? prompt[0] : prompt);
