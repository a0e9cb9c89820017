import { createParser } from 'eventsource-parser';
import { Failure } from '../failure.ts';
import { isObject, parseObject, type JsonObject } from '../json.ts';
import { DONE } from '../reply-formats.ts';
import type { EngineReply } from './connection.ts';
import { badReply, EngineFailed } from './engine-failed.ts';
import type { Exchange } from './exchange.ts';
import { rejection } from './rejection.ts';

/** Returns what the agent is told of a reply with another status than 200. */
type Refuse = (exchange: Exchange, reply: EngineReply) => Promise<Failure>;

/** Sends one request of a call. Rejects with the engine's own refusal unless the status is 200. */
export async function post(
  exchange: Exchange,
  path: string,
  body: JsonObject,
  refuse: Refuse = rejection,
): Promise<EngineReply> {
  const reply = await exchange.post(path, body);
  if (reply.status !== 200) throw await refuse(exchange, reply);
  return reply;
}

/** Asks the engine within a call. Returns null when it has no such route or refuses. */
export async function ask(
  exchange: Exchange,
  path: string,
  body: JsonObject,
  refuse: Refuse = rejection,
): Promise<JsonObject | null> {
  const reply = await exchange.post(path, body);
  if (reply.status >= 500) throw await refuse(exchange, reply);
  const text = await exchange.readText(reply.body);
  return reply.status === 200 ? parseObject(text) : null;
}

export async function wholeOf(exchange: Exchange, reply: EngineReply): Promise<JsonObject> {
  return parseReply(await exchange.readText(reply.body));
}

export function parseReply(text: string): JsonObject {
  const body = parseObject(text);
  if (!body) throw badReply(`is not a JSON object: ${text.slice(0, 200)}`);
  return body;
}

/** Yields what the reply's events hold. The network's parts may end within a character, a line or an event. */
export async function* chunksOf<T extends object>(
  exchange: Exchange,
  reply: EngineReply,
  chunkIn: (data: string) => T | Failure,
): AsyncGenerator<T[]> {
  if (!reply.contentType.startsWith('text/event-stream'))
    throw badReply(`is ${reply.contentType || 'untyped'}, not a stream`);
  let chunks: T[] = [];
  let failure: Failure | null = null;
  const onEvent = ({ data }: { data: string }) => {
    if (data === DONE || failure) return;
    const chunk = chunkIn(data);
    if (chunk instanceof Failure) failure = chunk;
    else chunks.push(chunk);
  };
  const parser = createParser({ onEvent });
  const decoder = new TextDecoder();
  const body = reply.body[Symbol.asyncIterator]();
  try {
    for (let bytes = await exchange.next(body); bytes; bytes = await exchange.next(body)) {
      parser.feed(decoder.decode(bytes, { stream: true }));
      if (chunks.length > 0) yield chunks;
      chunks = [];
      if (failure) throw failure;
    }
  } finally {
    await body.return?.();
  }
}

/** Returns the object of an event, or why there is none. */
export function objectIn(data: string): JsonObject | Failure {
  const chunk = parseObject(data);
  if (!chunk) return badReply(`has an event that is not a JSON object: ${data.slice(0, 200)}`);
  if (!isObject(chunk.error)) return chunk;
  const { message } = chunk.error;
  return new EngineFailed(
    `the engine broke off: ${typeof message === 'string' ? message : JSON.stringify(chunk.error)}`,
    { isAnswer: true },
  );
}
