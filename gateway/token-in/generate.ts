import { chunksOf, wholeOf, type Answer } from '../chat/answer.ts';
import type { Call } from '../chat/call.ts';
import { onlyChoice } from '../chat/hide.ts';
import { badReply, rejection } from '../chat/rejection.ts';
import type { EngineReply } from '../engines/connection.ts';
import type { Replica } from '../engines/replica.ts';
import { Failure } from '../failure.ts';
import { isObject, type JsonObject } from '../json.ts';
import { chatChunks, wholeAsChunks } from './chat-chunks.ts';
import type { EngineTraits } from './engine-traits.ts';

type Generation = {
  /** What the engine's chat route would have been sent. */
  body: JsonObject;
  /** What it rendered of that. */
  rendered: JsonObject;
  prompt: number[];
  traits: EngineTraits;
};

/** Generates from ids. Text streams as it is sampled; where the engine takes text apart, the reply is derendered whole. */
export async function generate(call: Call, replica: Replica, generation: Generation): Promise<Answer> {
  const { body, rendered, prompt, traits } = generation;
  const asText = call.request.stream && !traits.parses;
  const sampling = withRoom(isObject(rendered.sampling_params) ? rendered.sampling_params : {}, {
    prompt: prompt.length,
    context: contextOf((await replica.models())[0]),
    asked: typeof body.max_tokens === 'number' ? body.max_tokens : null,
  });
  const request = {
    ...rendered,
    token_ids: prompt,
    sampling_params: sampling,
    cache_salt: body.cache_salt,
    stream: asText,
    ...(asText ? { output_mode: 'text', stream_options: { include_usage: true } } : {}),
  };
  const reply = await post(call, replica, '/inference/v1/generate', request);
  if (asText) {
    const chunks = () => chatChunks(chunksOf(call, reply), { prompt, model: body.model });
    return { chunks, whole: () => Promise.reject(badReply('is a stream')) };
  }
  const whole = async () => derender(call, replica, generation, await wholeOf(call, reply));
  return { whole, chunks: () => wholeAsChunks(whole) };
}

/** The chat completion that the engine makes of the ids, with the ids. */
async function derender(call: Call, replica: Replica, { body, prompt }: Generation, generated: JsonObject): Promise<JsonObject> {
  const sampled = onlyChoice(generated);
  if (!sampled) throw badReply('has no choice');
  const request = {
    model: body.model,
    generate_response: generated,
    prompt_tokens: prompt.length,
    prompt_token_ids: prompt,
    chat_request: { ...body, stream: false, stream_options: undefined },
  };
  const reply = await wholeOf(call, await post(call, replica, '/v1/chat/completions/derender', request));
  const choice = onlyChoice(reply);
  if (!choice) throw badReply('was derendered to no choice');
  const { token_ids, weight_versions } = sampled;
  const logprobs = isObject(choice.logprobs) ? choice.logprobs : sampled.logprobs;
  return { ...reply, prompt_token_ids: prompt, choices: [{ ...choice, token_ids, weight_versions, logprobs }] };
}

async function post(call: Call, replica: Replica, path: string, body: JsonObject): Promise<EngineReply> {
  const reply = await call.patient(replica.connection.send({ method: 'POST', path, body: JSON.stringify(body), signal: call.signal }));
  if (reply.status !== 200) throw await rejection(call, reply);
  return reply;
}

/** The prompt of recorded ids may be longer than the rendered one, by which the engine set the limit. */
function withRoom(sampling: JsonObject, { prompt, context, asked }: { prompt: number; context: number | null; asked: number | null }): JsonObject {
  if (context === null) return sampling;
  const room = context - prompt;
  if (room < 1) {
    const message = `This model's maximum context length is ${context} tokens. However, the conversation holds ${prompt} tokens.`;
    throw new Failure(400, 'context_length_exceeded', message, { retryable: false });
  }
  return { ...sampling, max_tokens: Math.min(asked ?? room, room) };
}

const contextOf = (model: JsonObject | undefined): number | null => (typeof model?.max_model_len === 'number' ? model.max_model_len : null);
