import type { JsonObject } from '../../json.ts';
import { leftOutOf, type LeftOut } from '../unserved.ts';
import { withoutNulls } from '../without-nulls.ts';
import type { MessagesRequest, Block, CountRequest } from './shape.ts';
import { chatMessagesOf } from './to-chat-messages.ts';
import { chatTool, chatToolChoice, toolsInForce } from './tools.ts';

/** Returns the equivalent chat request. A budget for thinking is left out, because most engines refuse one and it changes what is sampled. */
export function chatBodyOf(asked: MessagesRequest): JsonObject {
  const { max_tokens, stream, stop_sequences, temperature, top_p, top_k, output_config, output_format } = asked;
  const format = output_config?.format ?? output_format;
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

/** Returns the fields that make the prompt. */
export function promptFieldsOf(asked: CountRequest): JsonObject {
  const { model, tool_choice, chat_template_kwargs, output_config, thinking } = asked;
  const tools = toolsInForce(asked);
  return withoutNulls({
    model,
    messages: chatMessagesOf(asked),
    ...(tools.length > 0
      ? { tools: tools.map(chatTool), ...(tool_choice ? chatToolChoice(tool_choice, tools) : {}) }
      : {}),
    reasoning_effort: thinking?.type === 'disabled' ? 'none' : output_config?.effort,
    chat_template_kwargs,
  });
}

/** Returns the parts of the request that the model is not shown. */
export function leftOut({ system, messages, tools }: CountRequest): LeftOut[] {
  const blocks = (content: string | readonly Block[] | null | undefined, at: string): LeftOut[] =>
    typeof content === 'string'
      ? []
      : leftOutOf(content ?? [], at, (block, here) =>
          block.type === 'tool_result' && Array.isArray(block.content)
            ? leftOutOf(block.content, `${here}.content`)
            : [],
        );
  return [
    ...blocks(system, 'system'),
    ...messages.flatMap(({ content }, i) => blocks(content, `messages.${i}.content`)),
    ...leftOutOf(tools ?? [], 'tools'),
  ];
}
