import { onlyChoice } from '../chat/hide.ts';
import { badReply } from '../chat/rejection.ts';
import { isObject, type JsonObject } from '../json.ts';
import type { Generation } from './generate.ts';

/**
 * The chat completion that the engine makes of generated ids, with those ids. What its chat route does besides is done here:
 * the id that ended the turn is no text, a reply that calls tools ends by `tool_calls`, and `parallel_tool_calls: false` keeps one.
 */
export async function derender(
  { body, prompt, traits }: Generation,
  generated: JsonObject,
  post: (path: string, body: JsonObject) => Promise<JsonObject>,
): Promise<JsonObject> {
  const sampled = onlyChoice(generated);
  if (!sampled || !Array.isArray(sampled.token_ids)) throw badReply('has no token ids');
  const { token_ids, weight_versions } = sampled;
  const spoken = sampled.finish_reason === 'stop' && token_ids.at(-1) === traits.closing[0] ? token_ids.slice(0, -1) : token_ids;
  if (spoken.length === 0) return silent(generated, body.model, sampled);
  const reply = await post('/v1/chat/completions/derender', {
    model: body.model,
    generate_response: { ...generated, prompt_token_ids: prompt, choices: [{ ...sampled, token_ids: spoken }] },
    prompt_tokens: prompt.length,
    prompt_token_ids: prompt,
    chat_request: { ...body, stream: false, stream_options: undefined },
  });
  const choice = onlyChoice(reply);
  if (!choice || !isObject(choice.message)) throw badReply('was derendered to no message');
  const message = body.parallel_tool_calls === false ? withOneCall(choice.message) : choice.message;
  const callsTools = Array.isArray(message.tool_calls) && message.tool_calls.length > 0 && !isObject(body.tool_choice);
  const finish_reason = callsTools && choice.finish_reason === 'stop' ? 'tool_calls' : choice.finish_reason;
  const logprobs = isObject(choice.logprobs) ? choice.logprobs : sampled.logprobs;
  return { ...reply, usage: generated.usage ?? reply.usage, choices: [{ ...choice, message, finish_reason, token_ids, weight_versions, logprobs }] };
}

function silent(generated: JsonObject, model: unknown, sampled: JsonObject): JsonObject {
  const head = { id: generated.request_id, object: 'chat.completion', created: Math.floor(Date.now() / 1000), model };
  return { ...head, choices: [{ ...sampled, message: { role: 'assistant', content: '' } }], usage: generated.usage };
}

const withOneCall = (message: JsonObject): JsonObject =>
  Array.isArray(message.tool_calls) ? { ...message, tool_calls: message.tool_calls.slice(0, 1) } : message;
