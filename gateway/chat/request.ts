import { z } from 'zod';
import { check } from '../check.ts';
import { parseModelRequest, type JsonObject } from '../json.ts';
import type { Protocol } from '../protocols/protocol.ts';
import type { LeftOut } from '../protocols/unserved.ts';

/** The completion routes of the engine. */
export type Route = '/v1/chat/completions' | '/v1/completions';

/** Checks only what the gateway itself reads. The engine judges the rest. */
const common = z.looseObject({
  model: z.string().nullish(),
  stream: z.boolean().nullish(),
  n: z.int().min(1).max(128).nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
});

export type ModelRequest = {
  protocol: Protocol;
  route: Route;
  /** The request as the engine's route takes it, before the run's own settings. */
  body: JsonObject;
  /** The request as the agent sent it, if that differs. */
  asked?: JsonObject;
  /** The part of it that is stored beside the body. */
  kept?: JsonObject;
  /** Parts that the model is not shown. They are recorded all the same. */
  leftOut?: readonly LeftOut[];
  /** Completes a request that names recorded calls instead of repeating them. */
  fromRecord?: (recorded: RecordedCalls) => Promise<ModelRequest>;
  model: string | null;
  stream: boolean;
  /** The number of replies. */
  n: number;
  maxTokens: number | null;
  /** The extra fields that the agent asked for itself. Everything else that the engine is asked for is hidden from it. */
  wants: Wants;
};
/** A recorded call: its request and the message of its reply. */
export type EarlierCall = { request: JsonObject; message: JsonObject };
/** Reads the calls of the trial's attempt. */
export type RecordedCalls = {
  /** Returns null when the call does not exist or has no answer. */
  call: (id: string) => Promise<EarlierCall | null>;
  /** Returns the replies by call, without calls that do not exist. */
  replies: (ids: readonly string[]) => Promise<ReadonlyMap<string, JsonObject>>;
  /** Counts about how many bytes the request gains, before they are added. Throws when there are too many. */
  gain: (bytes: number) => void;
};
export type Wants = { logprobs: boolean; tokenIds: boolean; usage: boolean };

type Kind = { protocol: Protocol; route: Route; shape: z.ZodType };

/** Reads a request whose body is in the engine's own form. */
export function readRequest(bytes: Uint8Array<ArrayBuffer>, { protocol, route, shape }: Kind): ModelRequest {
  const body = parseModelRequest(bytes);
  check(shape, body);
  const { stream, stream_options, model, n, max_tokens, max_completion_tokens } = check(common, body);
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
