import { z } from 'zod';
import { badRequest, parseBody } from '../json.ts';

/** Only what the gateway itself reads is checked; the engine judges the rest. */
const shape = z.looseObject({
  messages: z.array(z.looseObject({ role: z.string() })).min(1, 'at least one message is needed'),
  model: z.string().optional(),
  stream: z.boolean().nullish(),
  n: z
    .literal(1, '`n` must be 1: one request is one call of the trial; send the request again for another sample')
    .nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
});

export type ChatRequest = {
  /** As it came. */
  bytes: Uint8Array;
  body: Record<string, unknown>;
  model: string | null;
  stream: boolean;
  maxTokens: number | null;
  /** What the agent asked for itself; the rest of what the engine is asked for is hidden from it. */
  wants: Wants;
};
export type Wants = { logprobs: boolean; tokenIds: boolean; usage: boolean };

export function parseChatRequest(bytes: Uint8Array): ChatRequest {
  const body = parseBody(bytes);
  const checked = shape.safeParse(body);
  if (!checked.success) {
    const [issue] = checked.error.issues;
    throw badRequest(`${issue?.path.join('.') || 'body'}: ${issue?.message ?? 'is not valid'}`);
  }
  const { stream, stream_options, model, max_tokens, max_completion_tokens } = checked.data;
  return {
    bytes,
    body,
    model: model ?? null,
    stream: stream === true,
    maxTokens: max_completion_tokens ?? max_tokens ?? null,
    wants: {
      logprobs: body.logprobs === true,
      tokenIds: body.return_token_ids === true,
      usage: stream !== true || stream_options?.include_usage === true,
    },
  };
}
