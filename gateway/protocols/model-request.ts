import type { CompletionKind, Wants } from '../engines/completion.ts';
import type { JsonObject } from '../json.ts';
import type { Protocol } from './protocol.ts';
import type { LeftOut } from './unserved.ts';

/** A request for the model's reply, as all protocols make it: the one internal call. */
export type ModelRequest = {
  protocol: Protocol;
  kind: CompletionKind;
  /** The request as a chat or text completion, before the run's own settings. */
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
