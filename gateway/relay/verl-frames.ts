import { z } from 'zod';

/** The frames of verl-recipe PR 83, which are JSON. Its proxy sends these fields and no others. */
export type CompletionRequest = {
  type: 'completion_request';
  request_id: string;
  session_id: string;
  messages: unknown;
  temperature: unknown;
  top_p: unknown;
  max_tokens: unknown;
  stop: unknown;
  tools: unknown;
  repetition_penalty: unknown;
  stream: false;
};

const completionResponse = z.object({
  type: z.literal('completion_response'),
  request_id: z.string(),
  token_ids: z.array(z.number()).nullish(),
  completion_text: z.string().nullish(),
  content_text: z.string().nullish(),
  tool_calls: z.array(z.record(z.string(), z.unknown())).nullish(),
  finish_reason: z.string().nullish(),
  error: z.string().nullish(),
});
export type CompletionResponse = z.output<typeof completionResponse>;

export const verlFrame = z.discriminatedUnion('type', [
  completionResponse,
  z.object({ type: z.literal('ping') }),
  z.object({ type: z.literal('pong') }),
]);
