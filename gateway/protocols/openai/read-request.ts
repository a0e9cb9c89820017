import { z } from 'zod';
import { check } from '../../check.ts';
import { asksForIds, type CompletionKind } from '../../engines/completion.ts';
import { parseModelRequest } from '../../json.ts';
import type { ModelRequest } from '../model-request.ts';
import type { Protocol } from '../protocol.ts';

/** Checks only what the gateway itself reads. The engine judges the rest. */
const COMMON = {
  model: z.string().nullish(),
  stream: z.boolean().nullish(),
  n: z.int().min(1).max(128).nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
};

/** Returns the schema of a request with fields of its own. To check one schema takes less time than two. */
export const requestWith = <Own extends z.ZodRawShape>(own: Own) => z.looseObject({ ...own, ...COMMON });

type Shape = { protocol: Protocol; kind: CompletionKind; shape: z.ZodType<z.output<z.ZodObject<typeof COMMON>>> };

/** Reads a request whose body is a completion already. */
export function readRequest(bytes: Uint8Array<ArrayBuffer>, { protocol, kind, shape }: Shape): ModelRequest {
  const body = parseModelRequest(bytes);
  const { stream, stream_options, model, n, max_tokens, max_completion_tokens } = check(shape, body);
  return {
    protocol,
    kind,
    body,
    model: model ?? null,
    stream: stream === true,
    n: n ?? 1,
    maxTokens: max_completion_tokens ?? max_tokens ?? null,
    wants: {
      logprobs: body.logprobs === true || typeof body.logprobs === 'number',
      tokenIds: asksForIds(body),
      usage: stream !== true || stream_options?.include_usage === true,
    },
  };
}
