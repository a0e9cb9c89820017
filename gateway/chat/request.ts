import { z } from 'zod';
import type { Failure } from '../failure.ts';
import { badRequest, parseBody, type JsonObject } from '../json.ts';
import type { Protocol } from '../protocols/protocol.ts';

/** The engine's routes that make completions. */
export type Route = '/v1/chat/completions' | '/v1/completions';

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
  protocol: Protocol;
  route: Route;
  /** As the engine's route takes it, before the run's own settings. */
  body: JsonObject;
  /** As the agent sent it, where that is something else. */
  asked?: JsonObject;
  /** What of it is stored beside the body. */
  kept?: JsonObject;
  /** The recorded call whose messages and reply go before these, where the request names one instead of repeating it. */
  previous?: { callId: string | null; join: (earlier: Earlier) => ModelRequest; unknown: () => Failure };
  model: string | null;
  stream: boolean;
  /** How many replies are asked for. */
  n: number;
  maxTokens: number | null;
  /** What the agent asked for itself; the rest of what the engine is asked for is hidden from it. */
  wants: Wants;
};
/** A recorded call: its messages, and what was answered. */
export type Earlier = { request: JsonObject; message: JsonObject };
export type Wants = { logprobs: boolean; tokenIds: boolean; usage: boolean };

type Kind = { protocol: Protocol; route: Route; shape: z.ZodType };

/** A request whose body is one of the engine's own. */
export function readRequest(bytes: Uint8Array<ArrayBuffer>, { protocol, route, shape }: Kind): ModelRequest {
  const body = parseBody(bytes);
  const checked = common.safeParse(body);
  const [issue] = [...(shape.safeParse(body).error?.issues ?? []), ...(checked.error?.issues ?? [])];
  if (issue || !checked.success) throw badRequest(`${issue?.path.join('.') || 'body'}: ${issue?.message ?? 'is not valid'}`);
  const { stream, stream_options, model, n, max_tokens, max_completion_tokens } = checked.data;
  return {
    protocol,
    route,
    body,
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
