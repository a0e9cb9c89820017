import { ENGINES } from '../../engines/all.ts';
import type { JsonObject } from '../../json.ts';
import { leftOutOf, type LeftOut } from '../unserved.ts';
import { withoutNulls } from '../without-nulls.ts';
import type { ResponsesRequest, Item } from './shape.ts';
import { chatMessagesOf } from './to-chat-messages.ts';
import { chatTool, namedTools } from './tools.ts';

/** Fields that Responses do not have and chats do. */
const PASSED = [
  'model',
  'temperature',
  'top_p',
  'top_k',
  'min_p',
  'seed',
  'stop',
  'presence_penalty',
  'frequency_penalty',
  'repetition_penalty',
  'logit_bias',
  'chat_template_kwargs',
  'user',
  ...ENGINES.flatMap(({ fields }) => fields.sampling),
];

export const wantsLogprobs = ({ include }: ResponsesRequest): boolean =>
  include?.includes('message.output_text.logprobs') === true;

/** Returns the parts of the request that the model is not shown. */
export function leftOut({ input, tools }: ResponsesRequest): LeftOut[] {
  const parts = (item: Item, at: string): LeftOut[] => {
    if (item.type === 'message')
      return typeof item.content === 'string' ? [] : leftOutOf(item.content, `${at}.content`);
    return 'output' in item && Array.isArray(item.output) ? leftOutOf(item.output, `${at}.output`) : [];
  };
  return [...(typeof input === 'string' ? [] : leftOutOf(input, 'input', parts)), ...leftOutOf(tools ?? [], 'tools')];
}

/** Returns the equivalent chat request. */
export function chatBodyOf(asked: ResponsesRequest): JsonObject {
  const { instructions, input, tools, max_output_tokens, reasoning, stream, text, top_logprobs } = asked;
  const shown = namedTools(tools ?? []);
  return withoutNulls({
    ...Object.fromEntries(PASSED.map((name) => [name, asked[name]])),
    messages: [...(instructions ? [{ role: 'system', content: instructions }] : []), ...chatMessagesOf(input)],
    ...(shown.length > 0
      ? {
          tools: shown.map(chatTool),
          tool_choice: chatToolChoice(asked),
          parallel_tool_calls: asked.parallel_tool_calls,
        }
      : {}),
    max_tokens: max_output_tokens,
    reasoning_effort: reasoning?.effort,
    response_format: responseFormat(text?.format),
    ...(wantsLogprobs(asked) ? { logprobs: true, top_logprobs } : {}),
    stream: stream || null,
  });
}

function chatToolChoice({ tool_choice: choice, tools }: ResponsesRequest): unknown {
  if (!choice || typeof choice === 'string') return choice;
  // A chat request cannot restrict which of its tools a model may call, so the model may call all of them.
  if (choice.type === 'allowed_tools') return choice.mode;
  if (choice.type === 'unserved') return 'auto';
  const inNamespace = namedTools(tools ?? []).find((tool) => tool.shown.name === choice.name);
  return { type: 'function', function: { name: inNamespace?.name ?? choice.name } };
}

function responseFormat(format: NonNullable<ResponsesRequest['text']>['format']): JsonObject | null {
  if (!format || format.type === 'text') return null;
  if (format.type === 'json_object') return { type: 'json_object' };
  const { name, schema, strict } = format;
  return {
    type: 'json_schema',
    json_schema: { name: name ?? 'response', schema, ...(typeof strict === 'boolean' ? { strict } : {}) },
  };
}
