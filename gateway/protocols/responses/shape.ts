import { z } from 'zod';
import { isObject, type JsonObject } from '../../json.ts';
import { servedOr, unserved } from '../unserved.ts';

const image = z.looseObject({ type: z.literal('input_image'), image_url: z.string(), detail: z.string().nullish() });
const text = z.looseObject({ type: z.enum(['input_text', 'output_text', 'text']), text: z.string() });
const refusal = z.looseObject({ type: z.literal('refusal'), refusal: z.string() });
/** The gateway cannot fetch images and files that the provider stores. */
const isServedPart = ({ type, image_url }: JsonObject): boolean =>
  ['input_text', 'output_text', 'text', 'refusal'].includes(String(type)) ||
  (type === 'input_image' && typeof image_url === 'string');
const part = servedOr(isServedPart, z.discriminatedUnion('type', [text, image, refusal, unserved]));
const content = z.union([z.string(), z.array(part)]);
const reasoningText = z.array(z.looseObject({ text: z.string() })).nullish();

const call = { call_id: z.string(), name: z.string() };
const output = { call_id: z.string(), output: content };
export const servedItem = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('message'), role: z.enum(['user', 'assistant', 'system', 'developer']), content }),
  z.looseObject({ type: z.literal('function_call'), ...call, namespace: z.string().nullish(), arguments: z.string() }),
  z.looseObject({ type: z.literal('custom_tool_call'), ...call, input: z.string() }),
  z.looseObject({ type: z.enum(['function_call_output', 'custom_tool_call_output']), ...output }),
  z.looseObject({ type: z.literal('reasoning'), content: reasoningText, summary: reasoningText }),
  z.looseObject({ type: z.literal('item_reference'), id: z.string() }),
  unserved,
]);
const SERVED_ITEMS = [
  'message',
  'function_call',
  'custom_tool_call',
  'function_call_output',
  'custom_tool_call_output',
  'reasoning',
  'item_reference',
];
const anyItem = servedOr(({ type }) => SERVED_ITEMS.includes(String(type)), servedItem);
/** A message and a reference may omit their type. */
const inputItem = z.preprocess(
  (value) =>
    isObject(value) && (value.type ?? null) === null
      ? { ...value, type: 'role' in value ? 'message' : 'item_reference' }
      : value,
  anyItem,
);

const functionTool = z.looseObject({
  type: z.literal('function'),
  name: z.string(),
  description: z.string().nullish(),
  parameters: z.record(z.string(), z.unknown()).nullish(),
  strict: z.boolean().nullish(),
});
const customTool = z.looseObject({
  type: z.literal('custom'),
  name: z.string(),
  description: z.string().nullish(),
  format: z.looseObject({ type: z.string(), syntax: z.string().nullish(), definition: z.string().nullish() }).nullish(),
});
const namespace = z.looseObject({
  type: z.literal('namespace'),
  name: z.string(),
  tools: z.array(z.looseObject({ type: z.string() })),
});
/** Tools that the provider runs itself (a web search, an interpreter) do not exist here, so the model is not shown them. */
const tool = servedOr(
  ({ type }) => type === 'function' || type === 'custom' || type === 'namespace',
  z.discriminatedUnion('type', [functionTool, customTool, namespace, unserved]),
);

const toolChoice = z.union(
  [
    z.enum(['auto', 'none', 'required']),
    z.looseObject({ type: z.enum(['function', 'custom']), name: z.string() }),
    z.looseObject({ type: z.literal('allowed_tools'), mode: z.enum(['auto', 'required']) }),
    servedOr(({ type }) => ['function', 'custom', 'allowed_tools'].includes(String(type)), unserved),
  ],
  'is auto, none, required, or names a tool',
);

const format = z.discriminatedUnion('type', [
  z.looseObject({ type: z.enum(['text', 'json_object']) }),
  z.looseObject({
    type: z.literal('json_schema'),
    name: z.string().nullish(),
    schema: z.record(z.string(), z.unknown()),
    strict: z.boolean().nullish(),
  }),
]);

const absent = (why: string) => z.literal(false, why).nullish();

/** The body of OpenAI's `/v1/responses`. */
export const responsesRequest = z.looseObject({
  model: z.string().nullish(),
  input: z.union([z.string(), z.array(inputItem)]),
  instructions: z.string().nullish(),
  previous_response_id: z.string().nullish(),
  tools: z.array(tool).nullish(),
  tool_choice: toolChoice.nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  max_output_tokens: z.int().min(1).nullish(),
  temperature: z.number().nullish(),
  top_p: z.number().nullish(),
  top_logprobs: z.int().min(0).nullish(),
  text: z.looseObject({ format: format.nullish() }).nullish(),
  reasoning: z.looseObject({ effort: z.string().nullish() }).nullish(),
  include: z.array(z.string()).nullish(),
  stream: z.boolean().nullish(),
  background: absent('is not served here: ask and wait, or stream'),
  prompt: absent('templates are not served here: send the messages'),
  conversation: absent('is not served here: name the response before by previous_response_id'),
});

export type ResponsesRequest = z.output<typeof responsesRequest>;
export type Item = z.output<typeof servedItem>;
export type Tool = z.output<typeof tool>;
export type FunctionTool = z.output<typeof functionTool>;
export type CustomTool = z.output<typeof customTool>;
export type ItemContent = z.output<typeof content>;
export { functionTool };
