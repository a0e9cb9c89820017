import { z } from 'zod';
import { isObject, type JsonObject } from '../../json.ts';
import { servedOr, unserved } from '../unserved.ts';

/** `cache_control` and other fields of a block do not affect the prompt. */
const text = z.looseObject({ type: z.literal('text'), text: z.string().nullish() });
const source = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('base64'), media_type: z.string(), data: z.string() }),
  z.looseObject({ type: z.literal('url'), url: z.string() }),
]);
const image = z.looseObject({ type: z.literal('image'), source });
/** Names a tool that a tool search found. Older clients name the field differently. */
const toolReference = z.looseObject({
  type: z.literal('tool_reference'),
  tool_name: z.string().nullish(),
  name: z.string().nullish(),
});

/** The gateway cannot fetch images that the provider stores. */
const isServedImage = ({ type, source: from }: JsonObject): boolean =>
  type !== 'image' || !isObject(from) || from.type === 'base64' || from.type === 'url';
const isOneOf =
  (...types: string[]) =>
  (value: JsonObject): boolean =>
    types.includes(String(value.type)) && isServedImage(value);

const shown = servedOr(
  isOneOf('text', 'image', 'tool_reference'),
  z.discriminatedUnion('type', [text, image, toolReference, unserved]),
);
/** The input is an object, unless a model wrote something else and its agent sends that back. */
const toolUse = z.looseObject({ type: z.literal('tool_use'), id: z.string(), name: z.string(), input: z.unknown() });
const toolResult = z.looseObject({
  type: z.literal('tool_result'),
  tool_use_id: z.string(),
  content: z.union([z.string(), z.array(shown)]).nullish(),
});
const thinking = z.looseObject({ type: z.literal('thinking'), thinking: z.string().nullish() });
const redacted = z.looseObject({ type: z.literal('redacted_thinking') });

const tool = z.looseObject({
  name: z.string(),
  description: z.string().nullish(),
  input_schema: z.record(z.string(), z.unknown(), 'is missing: the model runs here, and needs the schema of its tools'),
  strict: z.boolean().nullish(),
  defer_loading: z.boolean().nullish(),
});
const reference = z.looseObject({ type: z.literal('tool_reference'), name: z.string() });
const addition = z.looseObject({
  type: z.literal('tool_addition'),
  tool: z.discriminatedUnion('type', [
    reference,
    z.looseObject({ type: z.literal('tool_definition'), definition: tool }),
  ]),
});
const removal = z.looseObject({ type: z.literal('tool_removal'), tool: reference });

const block = servedOr(
  isOneOf('text', 'image', 'tool_use', 'tool_result', 'thinking', 'redacted_thinking', 'tool_addition', 'tool_removal'),
  z.discriminatedUnion('type', [text, image, toolUse, toolResult, thinking, redacted, addition, removal, unserved]),
);

const message = z.looseObject({
  role: z.enum(['user', 'assistant', 'system']),
  content: z.union([z.string(), z.array(block)]),
});

/** False for tools that the provider runs or trained its own models on. They have a type and no schema, so this model cannot be shown them. */
const isOwnTool = ({ type, input_schema }: JsonObject): boolean => type === 'custom' || input_schema !== undefined;
const anyTool = servedOr(isOwnTool, z.union([tool, unserved]));

const toolChoice = z.discriminatedUnion('type', [
  z.looseObject({ type: z.enum(['auto', 'any', 'none']), disable_parallel_tool_use: z.boolean().nullish() }),
  z.looseObject({ type: z.literal('tool'), name: z.string(), disable_parallel_tool_use: z.boolean().nullish() }),
]);

const format = z.looseObject({ type: z.literal('json_schema'), schema: z.record(z.string(), z.unknown()) }).nullish();

const counted = z.looseObject({
  model: z.string().nullish(),
  messages: z.array(message).min(1, 'at least one message is needed'),
  system: z.union([z.string(), z.array(block)]).nullish(),
  tools: z.array(anyTool).nullish(),
  tool_choice: toolChoice.nullish(),
  thinking: z.looseObject({ type: z.string() }).nullish(),
  output_config: z.looseObject({ effort: z.string().nullish(), format }).nullish(),
  /** Clients put the format into this field before `output_config` existed. */
  output_format: format,
  chat_template_kwargs: z.record(z.string(), z.unknown()).nullish(),
});

/** The body of Anthropic's `/v1/messages/count_tokens`. */
export const countRequest = counted;

/** The body of Anthropic's `/v1/messages`. */
export const messagesRequest = counted.extend({
  max_tokens: z.int().min(1),
  stream: z.boolean().nullish(),
  stop_sequences: z.array(z.string()).nullish(),
  temperature: z.number().nullish(),
  top_p: z.number().nullish(),
  top_k: z.int().nullish(),
});

export type CountRequest = z.output<typeof countRequest>;
export type MessagesRequest = z.output<typeof messagesRequest>;
export type Message = z.output<typeof message>;
export type Block = z.output<typeof block>;
export type ShownBlock = z.output<typeof shown>;
export type Tool = z.output<typeof tool>;
