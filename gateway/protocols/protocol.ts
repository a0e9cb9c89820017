import type { ModelRequest } from '../chat/request.ts';
import type { Failure } from '../failure.ts';
import type { JsonObject } from '../json.ts';

/**
 * How agents speak to a model. Each protocol's requests become the one internal call, a chat or text completion of vLLM's, and
 * its reply or chunks become the protocol's own; so tokens, retries, budgets and the record are the same for all.
 */
export interface Protocol {
  /** Below a trial's `/{trial}`. */
  readonly path: string;
  /** Throws a 400 for what cannot be a request. */
  parse: (bytes: Uint8Array<ArrayBuffer>) => ModelRequest;
  /** A whole reply, as its agent gets it. */
  whole: (reply: JsonObject, request: ModelRequest) => JsonObject;
  /** Writes one reply's stream. */
  writer: (request: ModelRequest) => EventWriter;
  errorBody: (failure: Failure) => JsonObject;
}

/** Server-sent events, each whole, as text; `''` is none. */
export interface EventWriter {
  write: (chunk: JsonObject) => string;
  /** The same for a chunk that is passed on as it is; absent where none is. */
  pass?: (json: string) => string;
  /** After the last chunk. */
  end: () => string;
  fail: (failure: Failure) => string;
}
