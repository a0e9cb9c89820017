import type { ModelRequest } from '../chat/request.ts';
import type { TokenChunk } from '../chat/token-chunk.ts';
import type { Failure } from '../failure.ts';
import type { JsonObject } from '../json.ts';
import type { ProtocolName } from '../../store/schema.ts';

/**
 * How agents speak to a model. Each protocol's requests become the one internal call, a chat or text completion of vLLM's, and
 * its reply or chunks become the protocol's own; so tokens, retries, budgets and the record are the same for all.
 */
export interface Protocol {
  /** As the record has it. */
  readonly name: ProtocolName;
  /** Below a trial's `/{trial}`. */
  readonly path: `/v1/${string}`;
  /** Throws a 400 for what cannot be a request. */
  parse: (bytes: Uint8Array<ArrayBuffer>) => ModelRequest;
  /** A whole reply, as its agent gets it. The call's id makes the reply's own ids: a replay has the same ones. */
  whole: (reply: JsonObject, request: ModelRequest, callId: string) => JsonObject;
  /** Writes one reply's stream. */
  writer: (request: ModelRequest, callId: string) => EventWriter;
  errorBody: (failure: Failure) => JsonObject;
}

/** Server-sent events, each whole, as text; `''` is none. */
export interface EventWriter {
  /** `promptTokens`: null while they are not counted. */
  write: (chunk: JsonObject, promptTokens: number | null) => string;
  /** The same for a chunk that is one more token, without making objects of it; null when it must be written like any other. */
  pass: (token: TokenChunk) => string | null;
  /** What says that a reply is still on its way; absent where the protocol has nothing for it: a comment line, which clients skip. */
  keepAlive?: () => string;
  /** After the last chunk. */
  end: () => string;
  fail: (failure: Failure) => string;
}
