import type { ModelRequest } from '../chat/request.ts';
import type { TokenChunk } from '../chat/token-json.ts';
import type { Failure } from '../failure.ts';
import type { JsonObject } from '../json.ts';
import type { ProtocolName } from '../../store/schema.ts';

/**
 * A protocol in which agents speak to a model. Its requests become the one internal call, vLLM's chat or text completion, and replies or
 * chunks become the protocol's own. So tokens, retries, budgets and the record are the same for all.
 */
export interface Protocol {
  /** The name in the record. */
  readonly name: ProtocolName;
  /** The path below a trial's `/{trial}`. */
  readonly path: `/v1/${string}`;
  /** Throws a 400 for a body that cannot be a request. */
  parse: (bytes: Uint8Array<ArrayBuffer>) => ModelRequest;
  /** Converts a whole reply for its agent. The reply's own ids are made from the call's id, so that a replay has the same ones. */
  whole: (reply: JsonObject, request: ModelRequest, callId: string) => JsonObject;
  /** Returns a writer for one reply's stream. */
  writer: (request: ModelRequest, callId: string) => EventWriter;
  errorBody: (failure: Failure) => JsonObject;
}

/** Returns whole server-sent events as text; `''` means none. */
export interface EventWriter {
  /** `promptTokens` is null until they are counted. */
  write: (chunk: JsonObject, promptTokens: number | null) => string;
  /** Writes a chunk that is one more token without creating objects. Returns null when it must be written like any other. */
  pass: (token: TokenChunk) => string | null;
  /** Returns the protocol's sign that a reply is still coming. If absent, a comment line is sent, which clients skip. */
  keepAlive?: () => string;
  /** Writes what follows the last chunk. */
  end: () => string;
  fail: (failure: Failure) => string;
}
