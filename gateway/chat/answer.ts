import { readText, type EngineReply } from '../engines/connection.ts';
import { Failure } from '../failure.ts';
import { isObject, parseObject, type JsonObject } from '../json.ts';
import { DONE, readEvents } from '../sse.ts';
import type { Call } from './call.ts';
import { badReply } from './rejection.ts';

/** An engine's reply under way, whichever of its routes was asked: a chat completion, or its chunks, with ids and log-probabilities. */
export type Answer = {
  whole: () => Promise<JsonObject>;
  chunks: () => AsyncGenerator<JsonObject>;
};

/** What `/v1/chat/completions` answers. */
export function ordinaryAnswer(call: Call, reply: EngineReply): Answer {
  return { whole: () => wholeOf(call, reply), chunks: () => chunksOf(call, reply) };
}

export async function wholeOf(call: Call, reply: EngineReply): Promise<JsonObject> {
  const text = await readText(call.read(reply.body));
  const body = parseObject(text);
  if (!body) throw badReply(`is not a JSON object: ${text.slice(0, 200)}`);
  return body;
}

export async function* chunksOf(call: Call, reply: EngineReply): AsyncGenerator<JsonObject> {
  if (!reply.contentType.startsWith('text/event-stream')) throw badReply(`is ${reply.contentType || 'untyped'}, not a stream`);
  for await (const data of readEvents(call.read(reply.body))) {
    if (data === DONE) continue;
    const chunk = parseObject(data);
    if (!chunk) throw badReply(`has an event that is not a JSON object: ${data.slice(0, 200)}`);
    if (isObject(chunk.error)) throw new Failure(502, 'engine_error', `the engine broke off: ${String(chunk.error.message ?? JSON.stringify(chunk.error))}`);
    yield chunk;
  }
}
