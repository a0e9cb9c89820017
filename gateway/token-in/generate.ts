import { chunksOf, wholeOf, type Answer } from '../chat/answer.ts';
import type { Call } from '../chat/call.ts';
import { onlyChoice } from '../chat/hide.ts';
import { badReply, rejection } from '../chat/rejection.ts';
import { wholeAsChunks } from '../chat/whole-as-chunks.ts';
import type { EngineReply } from '../engines/connection.ts';
import type { Replica } from '../engines/replica.ts';
import { Failure } from '../failure.ts';
import { isObject, type JsonObject } from '../json.ts';
import { chatChunks } from './chat-chunks.ts';
import { derender } from './derender.ts';
import type { EngineTraits } from './engine-traits.ts';

export type Generation = {
  /** What the engine's chat route would have been sent. */
  body: JsonObject;
  /** What it rendered of that. */
  rendered: JsonObject;
  prompt: number[];
  traits: EngineTraits;
};

/** Generates from ids: as text, streamed as it is sampled, or where the engine takes text apart as ids that are derendered whole. */
export async function generate(call: Call, replica: Replica, generation: Generation): Promise<Answer> {
  const { body, rendered, prompt, traits } = generation;
  const asText = !traits.parses;
  const stream = call.request.stream && asText;
  const request = {
    ...rendered,
    token_ids: prompt,
    sampling_params: withRoom(isObject(rendered.sampling_params) ? rendered.sampling_params : {}, prompt.length, await contextOf(replica)),
    cache_salt: body.cache_salt,
    stream,
    ...(asText ? { output_mode: 'text' } : {}),
    ...(stream ? { stream_options: { include_usage: true } } : {}),
  };
  const reply = await post(call, replica, '/inference/v1/generate', request);
  if (stream) {
    const chunks = () => chatChunks(chunksOf(call, reply), { prompt, model: body.model });
    return { chunks, whole: () => Promise.reject(badReply('is a stream')) };
  }
  const whole = async () => {
    const generated = await wholeOf(call, reply);
    const derendered = asText ? asChat(generated, body.model) : await derender(generation, generated, (path, asked) => post(call, replica, path, asked).then((each) => wholeOf(call, each)));
    return { ...derendered, prompt_token_ids: prompt };
  };
  return { whole, chunks: () => wholeAsChunks(whole) };
}

/** Generated text as the chat completion that it is without a parser. */
function asChat(generated: JsonObject, model: unknown): JsonObject {
  const { text, ...choice } = onlyChoice(generated) ?? {};
  if (typeof text !== 'string') throw badReply('has no text');
  const head = { id: generated.request_id, object: 'chat.completion', created: Math.floor(Date.now() / 1000), model };
  return { ...head, choices: [{ ...choice, message: { role: 'assistant', content: text } }], usage: generated.usage };
}

async function post(call: Call, replica: Replica, path: string, body: JsonObject): Promise<EngineReply> {
  const reply = await call.patient(replica.connection.send({ method: 'POST', path, body: JSON.stringify(body), signal: call.signal }));
  if (reply.status !== 200) throw await rejection(call, reply);
  return reply;
}

/** vLLM's own default, which it leaves out of what it renders. */
const MAX_TOKENS = 16;

/** The prompt of recorded ids may be longer than the rendered one, by which the engine set the limit. */
function withRoom(sampling: JsonObject, prompt: number, context: number | null): JsonObject {
  if (context === null) return sampling;
  const room = context - prompt;
  if (room < 1) {
    const message = `This model's maximum context length is ${context} tokens. However, the conversation holds ${prompt} tokens.`;
    throw new Failure(400, 'context_length_exceeded', message, { retryable: false });
  }
  return { ...sampling, max_tokens: Math.min(typeof sampling.max_tokens === 'number' ? sampling.max_tokens : MAX_TOKENS, room) };
}

async function contextOf(replica: Replica): Promise<number | null> {
  const length = (await replica.models())[0]?.max_model_len;
  return typeof length === 'number' ? length : null;
}
