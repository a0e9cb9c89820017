import { choicesOf } from '../../../store/calls/choices.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { chatReply } from '../completion.ts';
import { badReply } from '../engine-failed.ts';
import type { Generation } from './generate-from-ids.ts';

/**
 * Returns the chat completion that the engine makes of generated ids, with those ids. Some work of the chat route is done here: the id that
 * ended the turn is not text, and a reply that calls tools ends by `tool_calls`.
 */
export async function derender(
  { body, prompt, traits }: Generation,
  generated: JsonObject,
  post: (path: string, body: JsonObject) => Promise<JsonObject>,
): Promise<JsonObject> {
  const sampled = choicesOf(generated);
  // The route ignores the mask and the experts, which are longer than everything else.
  const trimmed = sampled.map((choice) => ({
    ...choice,
    sampling_mask: undefined,
    routed_experts: undefined,
    token_ids: trimmedIds(choice, traits.closing[0]),
  }));
  // The route refuses a choice without tokens.
  const withTokens = trimmed.filter(({ token_ids }) => token_ids.length > 0);
  const emptyReply = chatReply({ id: generated.request_id, model: body.model, choices: [], usage: generated.usage });
  const reply =
    withTokens.length === 0
      ? emptyReply
      : await post('/v1/chat/completions/derender', {
          model: body.model,
          generate_response: { ...generated, prompt_token_ids: prompt, choices: withTokens },
          prompt_tokens: prompt.length,
          prompt_token_ids: prompt,
          chat_request: { ...body, stream: false, stream_options: undefined },
        });
  const derendered = choicesOf(reply);
  const choices = sampled.map((choice, i) => {
    const index = withTokens.findIndex((each) => each === trimmed[i]);
    return index < 0
      ? { ...choice, message: { role: 'assistant', content: '' } }
      : asChatChoice(body, choice, derendered[index]);
  });
  return { ...reply, usage: generated.usage ?? reply.usage, choices };
}

function trimmedIds({ token_ids, finish_reason }: JsonObject, closing: number | undefined): unknown[] {
  if (!Array.isArray(token_ids)) throw badReply('has no token ids');
  return finish_reason === 'stop' && token_ids.at(-1) === closing ? token_ids.slice(0, -1) : token_ids;
}

function asChatChoice(
  body: JsonObject,
  { token_ids, weight_versions, sampling_mask, routed_experts, logprobs: sampled }: JsonObject,
  choice: JsonObject | undefined,
): JsonObject {
  if (!choice || !isObject(choice.message)) throw badReply('was derendered to no message');
  const { message } = choice;
  const callsTools = Array.isArray(message.tool_calls) && message.tool_calls.length > 0 && !isObject(body.tool_choice);
  const finish_reason = callsTools && choice.finish_reason === 'stop' ? 'tool_calls' : choice.finish_reason;
  return {
    ...choice,
    message,
    finish_reason,
    token_ids,
    weight_versions,
    sampling_mask,
    routed_experts,
    logprobs: isObject(choice.logprobs) ? choice.logprobs : sampled,
  };
}
