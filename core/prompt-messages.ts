import { z } from 'zod';

const part = z.looseObject({ type: z.string() }).superRefine((given, { addIssue }) => {
  if (given.type === 'text' && typeof given.text !== 'string')
    addIssue({ code: 'custom', path: ['text'], message: 'a part of type text has a text' });
});
const content = z.union([z.string(), z.array(part).min(1)], {
  error: 'content is a text, or a list of parts with a `type`',
});
const toolCall = z.looseObject({
  id: z.string(),
  type: z.literal('function').default('function'),
  function: z.looseObject({ name: z.string(), arguments: z.string({ error: 'arguments are JSON in a text' }) }),
});

const asked = z.looseObject({ role: z.enum(['system', 'developer', 'user']), content });
const answered = z
  .looseObject({ role: z.literal('assistant'), content: content.nullish(), tool_calls: z.array(toolCall).nullish() })
  .refine((given) => typeof given.content === 'string' || Boolean(given.content?.length ?? given.tool_calls?.length), {
    error: 'an assistant’s message has content or tool_calls',
  });
const result = z.looseObject({ role: z.literal('tool'), content, tool_call_id: z.string() });

/** The messages of a row's prompt, in the form of OpenAI's chat completions. Keys that are not named here stay as they are. */
export const promptMessages = z
  .array(
    z.discriminatedUnion('role', [asked, answered, result], {
      error: 'role is system, developer, user, assistant or tool',
    }),
  )
  .min(1, 'there is no message');

export type Message = z.infer<typeof promptMessages>[number];

/** Returns the text of a message for agents that read texts: parts that are no text, and tool calls, stand in brackets. */
export function textOfMessage(message: Message): string {
  const { content: given } = message;
  const text =
    typeof given === 'string'
      ? given
      : (given ?? []).map((each) => (each.type === 'text' ? String(each['text']) : `[${each.type}]`)).join('\n');
  const calls = message.role === 'assistant' ? (message.tool_calls ?? []) : [];
  const called = calls.map((call) => `[calls ${call.function.name}(${call.function.arguments})]`);
  return [...(text === '' ? [] : [text]), ...called].join('\n');
}
