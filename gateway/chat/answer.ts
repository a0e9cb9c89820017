import { stringifyExact } from '../../core/exact-json.ts';
import { createParser } from 'eventsource-parser';
import type { EngineReply } from '../engines/connection.ts';
import type { Replica } from '../engines/replica.ts';
import { Failure } from '../failure.ts';
import { isObject, parseObject, type JsonObject } from '../json.ts';
import { DONE } from '../reply-formats.ts';
import type { Call } from './call.ts';
import { badReply, EngineFailed, rejection } from './rejection.ts';
import { compactLogprobs, TokenChunk, type Chunk } from './token-json.ts';

/** An engine's reply under way, from any of its routes: a whole completion or its chunks, with ids and log-probabilities. */
export type Answer = {
  whole: () => Promise<JsonObject>;
  /** Yields chunks that arrived together as one list. */
  chunks: () => AsyncIterable<Chunk[]>;
};

/** Sends one request of a call to its engine. Rejects with the engine's own refusal unless the status is 200. */
export async function post(call: Call, { connection }: Replica, path: string, body: JsonObject): Promise<EngineReply> {
  const reply = await call.withIdleLimit(
    connection.send({ method: 'POST', path, body: stringifyExact(body), signal: call.signal }),
  );
  if (reply.status !== 200) throw await rejection(call, reply);
  return reply;
}

/** Reads the answer of an engine's completion routes. */
export function ordinaryAnswer(call: Call, reply: EngineReply): Answer {
  return { whole: () => compactOf(call, reply), chunks: () => chunksOf(call, reply) };
}

export async function wholeOf(call: Call, reply: EngineReply): Promise<JsonObject> {
  return parseReply(await call.readText(reply.body));
}

/** Log-probabilities that only the record needs are read as plain numbers. */
export async function compactOf(call: Call, reply: EngineReply): Promise<JsonObject> {
  const text = await call.readText(reply.body);
  return parseReply(call.request.wants.logprobs ? text : compactLogprobs(text));
}

function parseReply(text: string): JsonObject {
  const body = parseObject(text);
  if (!body) throw badReply(`is not a JSON object: ${text.slice(0, 200)}`);
  return body;
}

/** Yields the objects of the reply's events. The network's parts may end within a character, a line or an event. */
export async function* chunksOf(call: Call, reply: EngineReply): AsyncGenerator<Chunk[]> {
  if (!reply.contentType.startsWith('text/event-stream'))
    throw badReply(`is ${reply.contentType || 'untyped'}, not a stream`);
  let chunks: Chunk[] = [];
  let failure: Failure | null = null;
  const onEvent = ({ data }: { data: string }) => {
    if (data === DONE || failure) return;
    const chunk = chunkOf(data);
    if (chunk instanceof Failure) failure = chunk;
    else chunks.push(chunk);
  };
  const parser = createParser({ onEvent });
  const decoder = new TextDecoder();
  const body = reply.body[Symbol.asyncIterator]();
  try {
    for (let bytes = await call.next(body); bytes; bytes = await call.next(body)) {
      parser.feed(decoder.decode(bytes, { stream: true }));
      if (chunks.length > 0) yield chunks;
      chunks = [];
      if (failure) throw failure;
    }
  } finally {
    await body.return?.();
  }
}

function chunkOf(data: string): Chunk | Failure {
  const token = TokenChunk.read(data);
  if (token) return token;
  const chunk = parseObject(data);
  if (!chunk) return badReply(`has an event that is not a JSON object: ${data.slice(0, 200)}`);
  if (!isObject(chunk.error)) return chunk;
  const { message } = chunk.error;
  return new EngineFailed(
    `the engine broke off: ${typeof message === 'string' ? message : JSON.stringify(chunk.error)}`,
    { isAnswer: true },
  );
}
