import { choicesOf } from '../../../store/calls/choices.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { chunksOf, objectIn, post, wholeOf } from '../answer.ts';
import { EMPTY_RESULT, type CallResult } from '../call-result.ts';
import { asksForEachUsage, chatReply, completionCount, wholeAsChunks, withUsage } from '../completion.ts';
import type { Answer, EngineTraits, GenerationRequest } from '../engine.ts';
import { badReply } from '../engine-failed.ts';
import type { Exchange } from '../exchange.ts';
import { roomAfter } from '../room.ts';
import { chatChunks } from './chat-chunks.ts';
import { derender } from './derender.ts';
import { compactOf } from './ordinary-answer.ts';
import { readChunk, readWhole } from './read-reply.ts';
import { sampledOf, versionsOf } from './tokens.ts';

export type Generation = {
  /** The body that the engine's chat route would get. */
  body: JsonObject;
  /** The engine's rendering of that body. */
  rendered: JsonObject;
  prompt: number[];
  traits: EngineTraits;
  /** The prompt's first token whose experts are asked for, of an engine that returns them. */
  expertsFrom: number;
};

/** Generates from ids. The reply is text, streamed as it is sampled; if the engine parses text, the ids are generated whole and derendered. */
export async function generate(
  exchange: Exchange,
  { stream: isStream, wants, n }: GenerationRequest,
  generation: Generation,
): Promise<Answer> {
  const { body, rendered, prompt, traits, expertsFrom } = generation;
  const asText = !traits.parses;
  const stream = isStream && asText;
  const reply = await post(exchange, '/inference/v1/generate', {
    ...rendered,
    token_ids: prompt,
    sampling_params: {
      ...withRoom(
        isObject(rendered.sampling_params) ? rendered.sampling_params : {},
        await roomAfter(exchange.lease.replica, prompt.length),
      ),
      ...(traits.experts ? { routed_experts_prompt_start: expertsFrom } : {}),
    },
    cache_salt: body.cache_salt,
    stream,
    ...(asText ? { output_mode: 'text' } : {}),
    ...(stream ? withUsage(body) : {}),
  });
  let sampled = () => EMPTY_RESULT;
  const whole = async () => {
    const generated = await (asText ? compactOf(exchange, reply, wants) : wholeOf(exchange, reply));
    sampled = () => sampledResult(generated, prompt);
    const postWhole = async (path: string, asked: JsonObject) => wholeOf(exchange, await post(exchange, path, asked));
    const derendered = asText ? asChat(generated, body.model) : await derender(generation, generated, postWhole);
    sampled = () => EMPTY_RESULT;
    return { ...derendered, prompt_token_ids: prompt };
  };
  const chunks = stream
    ? () =>
        chatChunks(chunksOf(exchange, reply, objectIn), {
          prompt,
          model: body.model,
          n,
          as: (chunk) => readChunk(chunk, wants, expertsFrom),
        })
    : async function* () {
        yield wholeAsChunks(await whole(), asksForEachUsage(body)).map((chunk) => readChunk(chunk, wants, expertsFrom));
      };
  return { whole: async () => readWhole(await whole(), wants, expertsFrom), chunks, sampled: () => sampled() };
}

/** Returns the result of a call whose ids do not become a chat reply, with what was sampled all the same. */
function sampledResult(generated: JsonObject, prompt: number[]): CallResult {
  const choices = choicesOf(generated).map((choice) => ({
    ...sampledOf(choice),
    versions: versionsOf(choice),
    finishReason: null,
  }));
  return { prompt, choices, counted: completionCount(generated.usage), reply: null };
}

/** Returns generated text as a chat completion, as it is without a parser. */
function asChat(generated: JsonObject, model: unknown): JsonObject {
  const choices = choicesOf(generated).map(({ text, ...choice }) => {
    if (typeof text !== 'string') throw badReply('has no text');
    return { ...choice, message: { role: 'assistant', content: text } };
  });
  return chatReply({ id: generated.request_id, model, choices, usage: generated.usage });
}

/** vLLM's own default, which it leaves out of its rendering. */
const MAX_TOKENS = 16;

/** Lowers the limit of tokens if needed: a prompt of recorded ids may be longer than the rendered one, from which the engine set the limit. */
function withRoom(sampling: JsonObject, room: number | null): JsonObject {
  if (room === null) return sampling;
  const limit = typeof sampling.max_tokens === 'number' ? sampling.max_tokens : MAX_TOKENS;
  return { ...sampling, max_tokens: Math.min(limit, room) };
}
