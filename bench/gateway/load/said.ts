import { z } from 'zod';
import type { ProtocolName } from '../../../store/schema.ts';

/** What a real engine said, and how many tokens that was. */
export type Said = { text: string; tokens: number };
/** How a protocol's replies are read: a whole one, or an event of a stream, which adds to what was said before. */
export type Reading = { whole: (json: unknown) => Said; event: (json: unknown, said: Said) => void };

const texts = (parts: readonly { text?: string | undefined }[]): string => parts.map(({ text = '' }) => text).join('');

const counted = z.object({ completion_tokens: z.number() });
const chat = z.object({ choices: z.array(z.object({ message: z.object({ content: z.string() }) })), usage: counted });
const chatChunk = z.object({ choices: z.array(z.object({ delta: z.object({ content: z.string().nullish() }) })), usage: counted.nullish() });

const text = z.object({ choices: z.array(z.object({ text: z.string() })), usage: counted });
const textChunk = text.extend({ usage: counted.nullish() });

const sampled = z.object({ output_tokens: z.number() });
const parts = z.array(z.object({ text: z.string().optional() }));
const message = z.object({ content: parts, usage: sampled });
const messageEvent = z.object({ delta: z.object({ text: z.string().optional() }).optional(), usage: sampled.optional() });
const response = z.object({ output: z.array(z.object({ content: parts.optional() })), usage: sampled });
const typed = z.object({ type: z.string() });
const responseDelta = z.object({ delta: z.string() });
const responseEnd = z.object({ response });

export const READINGS: Record<ProtocolName, Reading> = {
  chat_completions: {
    whole: (json) => {
      const { choices, usage } = chat.parse(json);
      return { text: choices[0]?.message.content ?? '', tokens: usage.completion_tokens };
    },
    event: (json, said) => {
      const { choices, usage } = chatChunk.parse(json);
      said.text += choices[0]?.delta.content ?? '';
      said.tokens = usage?.completion_tokens ?? said.tokens;
    },
  },
  completions: {
    whole: (json) => {
      const { choices, usage } = text.parse(json);
      return { text: choices[0]?.text ?? '', tokens: usage.completion_tokens };
    },
    event: (json, said) => {
      const { choices, usage } = textChunk.parse(json);
      said.text += choices[0]?.text ?? '';
      said.tokens = usage?.completion_tokens ?? said.tokens;
    },
  },
  messages: {
    whole: (json) => {
      const { content, usage } = message.parse(json);
      return { text: texts(content), tokens: usage.output_tokens };
    },
    event: (json, said) => {
      const { delta, usage } = messageEvent.parse(json);
      said.text += delta?.text ?? '';
      said.tokens = usage?.output_tokens ?? said.tokens;
    },
  },
  responses: {
    whole: (json) => {
      const { output, usage } = response.parse(json);
      return { text: texts(output.flatMap(({ content = [] }) => content)), tokens: usage.output_tokens };
    },
    event: (json, said) => {
      const { type } = typed.parse(json);
      if (type === 'response.output_text.delta') said.text += responseDelta.parse(json).delta;
      else if (type === 'response.incomplete' || type === 'response.completed') said.tokens = responseEnd.parse(json).response.usage.output_tokens;
    },
  },
};
