import { z } from 'zod';

/** `cache_control` and whatever else a block carries says nothing about the prompt. */
const text = z.looseObject({ type: z.literal('text'), text: z.string() });
const source = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('base64'), media_type: z.string(), data: z.string() }),
  z.looseObject({ type: z.literal('url'), url: z.string() }),
]);
const image = z.looseObject({ type: z.literal('image'), source });
const shown = z.discriminatedUnion('type', [text, image], { error: notServed });
const toolUse = z.looseObject({ type: z.literal('tool_use'), id: z.string(), name: z.string(), input: z.record(z.string(), z.unknown()) });
const toolResult = z.looseObject({
  type: z.literal('tool_result'),
  tool_use_id: z.string(),
  content: z.union([z.string(), z.array(shown)]).nullish(),
});
const thinking = z.looseObject({ type: z.literal('thinking'), thinking: z.string() });
const redacted = z.looseObject({ type: z.literal('redacted_thinking') });
const block = z.discriminatedUnion('type', [text, image, toolUse, toolResult, thinking, redacted], { error: notServed });

const message = z.looseObject({ role: z.enum(['user', 'assistant', 'system']), content: z.union([z.string(), z.array(block)]) });

const tool = z.looseObject({
  name: z.string(),
  description: z.string().nullish(),
  input_schema: z.record(z.string(), z.unknown(), 'is missing: the model runs here, and Anthropic\'s own tools do not'),
  strict: z.boolean().nullish(),
});

const toolChoice = z.discriminatedUnion('type', [
  z.looseObject({ type: z.enum(['auto', 'any', 'none']), disable_parallel_tool_use: z.boolean().nullish() }),
  z.looseObject({ type: z.literal('tool'), name: z.string(), disable_parallel_tool_use: z.boolean().nullish() }),
]);

const counted = z.looseObject({
  model: z.string().nullish(),
  messages: z.array(message).min(1, 'at least one message is needed'),
  system: z.union([z.string(), z.array(text)]).nullish(),
  tools: z.array(tool).nullish(),
  tool_choice: toolChoice.nullish(),
  thinking: z.looseObject({ type: z.string() }).nullish(),
  output_config: z
    .looseObject({
      effort: z.string().nullish(),
      format: z.looseObject({ type: z.literal('json_schema'), schema: z.record(z.string(), z.unknown()) }).nullish(),
    })
    .nullish(),
  chat_template_kwargs: z.record(z.string(), z.unknown()).nullish(),
});

/** What Anthropic's `/v1/messages/count_tokens` takes. */
export const countRequest = counted;

/** What Anthropic's `/v1/messages` takes. */
export const messagesRequest = counted.extend({
  max_tokens: z.int().min(1),
  stream: z.boolean().nullish(),
  stop_sequences: z.array(z.string()).nullish(),
  temperature: z.number().nullish(),
  top_p: z.number().nullish(),
  top_k: z.int().nullish(),
});

export type Counted = z.output<typeof countRequest>;
export type Asked = z.output<typeof messagesRequest>;
export type Message = z.output<typeof message>;
export type Block = z.output<typeof block>;
export type Shown = z.output<typeof shown>;

function notServed({ code }: { code?: string }): string | undefined {
  return code === 'invalid_union' ? 'blocks of this type are not served here' : undefined;
}
