import { chunksOf, objectIn, parseReply } from '../answer.ts';
import { EMPTY_RESULT } from '../call-result.ts';
import type { Wants } from '../completion.ts';
import type { EngineReply } from '../connection.ts';
import type { Answer } from '../engine.ts';
import type { Exchange } from '../exchange.ts';
import { Failure } from '../../failure.ts';
import type { JsonObject } from '../../json.ts';
import { readChunk, readWhole } from './read-reply.ts';
import { compactLogprobs, TokenChunk } from './token-json.ts';

/** Reads the answer of the completion routes. */
export function ordinaryAnswer(exchange: Exchange, reply: EngineReply, wants: Wants, expertsFrom = 0): Answer {
  const chunkIn = (data: string) => {
    const token = TokenChunk.read(data, wants);
    if (token) return token;
    const chunk = objectIn(data);
    return chunk instanceof Failure ? chunk : readChunk(chunk, wants, expertsFrom);
  };
  return {
    whole: async () => readWhole(await compactOf(exchange, reply, wants), wants, expertsFrom),
    chunks: () => chunksOf(exchange, reply, chunkIn),
    sampled: () => EMPTY_RESULT,
  };
}

/** Log-probabilities that only the record needs are read as plain numbers. */
export async function compactOf(exchange: Exchange, reply: EngineReply, wants: Wants): Promise<JsonObject> {
  const text = await exchange.readText(reply.body);
  return parseReply(wants.logprobs ? text : compactLogprobs(text));
}
