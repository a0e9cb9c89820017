import type { JsonObject } from '../../json.ts';
import { chatMessagesOf } from './to-chat-messages.ts';
import type { Asked, Counted } from './shape.ts';

/** The chat request that asks for the same. A budget for thinking is left out: most engines refuse one, and it bends what is sampled. */
export function chatBodyOf(asked: Asked): JsonObject {
  const { max_tokens, stream, stop_sequences, temperature, top_p, top_k, output_config } = asked;
  const format = output_config?.format;
  return withoutNulls({
    ...promptFieldsOf(asked),
    max_tokens,
    stop: stop_sequences?.length ? stop_sequences : null,
    temperature,
    top_p,
    top_k,
    response_format: format && { type: 'json_schema', json_schema: { name: 'json_schema', schema: format.schema } },
    stream: stream || null,
  });
}

/** The fields that its prompt is made from. */
export function promptFieldsOf(asked: Counted): JsonObject {
  const { model, tools, tool_choice, chat_template_kwargs, output_config, thinking } = asked;
  return withoutNulls({
    model,
    messages: chatMessagesOf(asked),
    ...(tools?.length ? { tools: tools.map(chatTool), ...(tool_choice ? chatToolChoice(tool_choice) : {}) } : {}),
    reasoning_effort: thinking?.type === 'disabled' ? 'none' : output_config?.effort,
    chat_template_kwargs,
  });
}

const withoutNulls = (fields: JsonObject): JsonObject => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));

function chatTool({ name, description, input_schema, strict }: NonNullable<Counted['tools']>[number]): JsonObject {
  return { type: 'function', function: withoutNulls({ name, description, parameters: { type: 'object', ...input_schema }, strict }) };
}

const KINDS = { auto: 'auto', any: 'required', none: 'none' };

function chatToolChoice(choice: NonNullable<Counted['tool_choice']>): JsonObject {
  return {
    tool_choice: choice.type === 'tool' ? { type: 'function', function: { name: choice.name } } : KINDS[choice.type],
    parallel_tool_calls: choice.disable_parallel_tool_use !== true,
  };
}
