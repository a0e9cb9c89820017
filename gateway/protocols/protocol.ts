import type { TokenChunk } from '../engines/engine.ts';
import type { Failure } from '../failure.ts';
import type { JsonObject } from '../json.ts';
import type { ProtocolName } from '../../store/schema.ts';
import type { ModelRequest } from './model-request.ts';

/** A request as it came. The body is decoded. */
export type ProtocolRequest = { url: string; headers: Headers; bytes: Uint8Array<ArrayBuffer> };

/**
 * A protocol in which agents speak to a model. Its requests become the one internal call, a chat or text completion, and replies or
 * chunks become the protocol's own. So tokens, retries, budgets and the record are the same for all.
 */
export interface Protocol {
  /** The name in the record. */
  readonly name: ProtocolName;
  /** The name of its route, in messages and refusals. */
  readonly path: string;
  /** The paths of its route, in Hono's patterns: without a trial, found by the key alone, and below the trial's URL. */
  readonly paths: readonly string[];
  /** True when a request to this path gets errors in this protocol's form. */
  serves: (path: string) => boolean;
  /** The header in which its clients send their key, if that is not `Authorization`. */
  readonly keyHeader?: string;
  /** The header in which its clients read the id of a reply. */
  readonly idHeader: string;
  /** Throws a 400 for what cannot be a request. */
  parse: (request: ProtocolRequest) => ModelRequest;
  /** Converts a whole reply for its agent. The reply's own ids are made from the call's id, so that a replay has the same ones. */
  whole: (reply: JsonObject, request: ModelRequest, callId: string) => JsonObject;
  /** Returns a writer for one reply's stream. */
  writer: (request: ModelRequest, callId: string) => EventWriter;
  errorBody: (failure: Failure) => JsonObject;
  /** Its route that counts a prompt's tokens. */
  readonly countTokens?: TokenCounting;
}

export type TokenCounting = {
  readonly paths: readonly string[];
  /** Returns the fields of a chat request that make the prompt. */
  promptOf: (request: ProtocolRequest) => JsonObject;
  reply: (tokens: number) => JsonObject;
};

/** Returns whole server-sent events as text; `''` means none. */
export interface EventWriter {
  /** `promptTokens` is null until they are counted. */
  write: (chunk: JsonObject, promptTokens: number | null) => string;
  /** Writes a chunk that is one more token without creating objects. Returns null when it must be written like any other. */
  pass: (token: Pick<TokenChunk, 'index' | 'content' | 'shown'>) => string | null;
  /** Returns the protocol's sign that a reply is still coming. If absent, a comment line is sent, which clients skip. */
  keepAlive?: () => string;
  /** Writes what follows the last chunk. */
  end: () => string;
  fail: (failure: Failure) => string;
}
