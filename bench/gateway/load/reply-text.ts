import { z } from 'zod';
import type { ProtocolName } from '../../../store/schema.ts';

/** The text of a real engine's reply and its number of tokens. */
export type ReplyText = { text: string; tokens: number };
/** Reads a protocol's replies: a whole one, or an event of a stream, which is added to `reply`. */
export type Reading = { whole: (json: unknown) => ReplyText; event: (json: unknown, reply: ReplyText) => void };

const texts = (parts: readonly { text?: string | undefined }[]): string => parts.map(({ text = '' }) => text).join('');

const counted = z.object({ completion_tokens: z.number() });
const chat = z.object({ choices: z.array(z.object({ message: z.object({ content: z.string() }) })), usage: counted });
const chatChunk = z.object({
  choices: z.array(z.object({ delta: z.object({ content: z.string().nullish() }) })),
  usage: counted.nullish(),
});

const text = z.object({ choices: z.array(z.object({ text: z.string() })), usage: counted });
const textChunk = text.extend({ usage: counted.nullish() });

const sampled = z.object({ output_tokens: z.number() });
const parts = z.array(z.object({ text: z.string().optional() }));
const message = z.object({ content: parts, usage: sampled });
const messageEvent = z.object({
  delta: z.object({ text: z.string().optional() }).optional(),
  usage: sampled.optional(),
});
const contentReply = z.object({
  candidates: z.array(z.object({ content: z.object({ parts }) })),
  usageMetadata: z.object({ candidatesTokenCount: z.number() }).optional(),
});
const addContent = (json: unknown, reply: ReplyText): void => {
  const { candidates, usageMetadata } = contentReply.parse(json);
  reply.text += texts(candidates.flatMap((each) => each.content.parts));
  reply.tokens = usageMetadata?.candidatesTokenCount ?? reply.tokens;
};
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
    event: (json, reply) => {
      const { choices, usage } = chatChunk.parse(json);
      reply.text += choices[0]?.delta.content ?? '';
      reply.tokens = usage?.completion_tokens ?? reply.tokens;
    },
  },
  completions: {
    whole: (json) => {
      const { choices, usage } = text.parse(json);
      return { text: choices[0]?.text ?? '', tokens: usage.completion_tokens };
    },
    event: (json, reply) => {
      const { choices, usage } = textChunk.parse(json);
      reply.text += choices[0]?.text ?? '';
      reply.tokens = usage?.completion_tokens ?? reply.tokens;
    },
  },
  messages: {
    whole: (json) => {
      const { content, usage } = message.parse(json);
      return { text: texts(content), tokens: usage.output_tokens };
    },
    event: (json, reply) => {
      const { delta, usage } = messageEvent.parse(json);
      reply.text += delta?.text ?? '';
      reply.tokens = usage?.output_tokens ?? reply.tokens;
    },
  },
  responses: {
    whole: (json) => {
      const { output, usage } = response.parse(json);
      return { text: texts(output.flatMap(({ content = [] }) => content)), tokens: usage.output_tokens };
    },
    event: (json, reply) => {
      const { type } = typed.parse(json);
      if (type === 'response.output_text.delta') reply.text += responseDelta.parse(json).delta;
      else if (type === 'response.incomplete' || type === 'response.completed')
        reply.tokens = responseEnd.parse(json).response.usage.output_tokens;
    },
  },
  gemini: {
    whole: (json) => {
      const reply = { text: '', tokens: 0 };
      addContent(json, reply);
      return reply;
    },
    event: addContent,
  },
};
