import { chunksOf, compactOf, post, wholeOf, type Answer } from '../chat/answer.ts';
import type { Call } from '../chat/call.ts';
import type { CallResult } from '../chat/call-result.ts';
import { choicesOf } from '../../store/calls/choices.ts';
import { badReply } from '../chat/rejection.ts';
import { completionCount, sampledOf, versionsOf } from '../chat/tokens.ts';
import { chatReply, wholeAsChunks } from '../chat/whole-as-chunks.ts';
import type { Replica } from '../engines/replica.ts';
import { Failure } from '../failure.ts';
import { isObject, type JsonObject } from '../json.ts';
import { chatChunks } from './chat-chunks.ts';
import { derender } from './derender.ts';
import type { EngineTraits } from './engine-traits.ts';

export type Generation = {
  /** The body that the engine's chat route would get. */
  body: JsonObject;
  /** The engine's rendering of that body. */
  rendered: JsonObject;
  prompt: number[];
  traits: EngineTraits;
};

/** Generates from ids. The reply is text, streamed as it is sampled; if the engine parses text, the ids are generated whole and derendered. */
export async function generate(call: Call, replica: Replica, generation: Generation): Promise<Answer> {
  const { body, rendered, prompt, traits } = generation;
  const asText = !traits.parses;
  const stream = call.request.stream && asText;
  const reply = await post(call, replica, '/inference/v1/generate', {
    ...rendered,
    token_ids: prompt,
    sampling_params: withRoom(
      isObject(rendered.sampling_params) ? rendered.sampling_params : {},
      prompt.length,
      await contextOf(replica),
    ),
    cache_salt: body.cache_salt,
    stream,
    ...(asText ? { output_mode: 'text' } : {}),
    ...(stream ? { stream_options: { include_usage: true } } : {}),
  });
  const whole = async () => {
    const generated = await (asText ? compactOf : wholeOf)(call, reply);
    const { result } = call;
    call.result = () => sampledResult(generated, prompt);
    const postWhole = async (path: string, asked: JsonObject) => wholeOf(call, await post(call, replica, path, asked));
    const derendered = asText ? asChat(generated, body.model) : await derender(generation, generated, postWhole);
    call.result = result;
    return { ...derendered, prompt_token_ids: prompt };
  };
  const chunks = stream
    ? () => chatChunks(chunksOf(call, reply), { prompt, model: body.model, n: call.request.n })
    : async function* () {
        yield wholeAsChunks(await whole());
      };
  return { whole, chunks };
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
function withRoom(sampling: JsonObject, prompt: number, context: number | null): JsonObject {
  if (context === null) return sampling;
  const room = context - prompt;
  if (room < 1) {
    const message = `This model's maximum context length is ${context} tokens. However, the conversation holds ${prompt} tokens.`;
    throw new Failure(400, 'context_length_exceeded', message, { retryable: false });
  }
  return {
    ...sampling,
    max_tokens: Math.min(typeof sampling.max_tokens === 'number' ? sampling.max_tokens : MAX_TOKENS, room),
  };
}

async function contextOf(replica: Replica): Promise<number | null> {
  const length = (await replica.models())[0]?.max_model_len;
  return typeof length === 'number' ? length : null;
}
