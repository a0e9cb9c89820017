import { gemini } from '../../../gateway/protocols/gemini/gemini.ts';
import { chatCompletions } from '../../../gateway/protocols/openai/chat-completions.ts';
import { completions } from '../../../gateway/protocols/openai/completions.ts';
import { messages } from '../../../gateway/protocols/messages/messages.ts';
import { responses } from '../../../gateway/protocols/responses/responses.ts';
import type { ProtocolName } from '../../../store/schema.ts';
import { textOf } from '../engine/replies.ts';

/** A message with places for a trial's name and a number, so that no two calls are equal. */
const WORDS =
  '%s asks for the %08d. time: which file holds the handler of the request, and what does its last test say of the failure that we saw yesterday evening?';
const QUESTION = `{"role":"user","content":"${WORDS}"}`;

export const question = (name: string, number: number, { question: words }: Form = FORMS.chat_completions): string =>
  words.replace('%s', name).replace('%08d', String(number).padStart(8, '0'));

const replyMessage = (text: string): string => `,{"role":"assistant","content":${JSON.stringify(text)}},`;

/** Returns a trial's path in this protocol from its path for chat completions. */
export const pathOf = (path: string, { path: own, streamPath = own }: Form, stream: boolean): string =>
  path.replace(chatCompletions.path, stream ? streamPath : own);

/** Returns the first `turns` questions of a conversation, each but the last with its reply. */
export function conversation(name: string, turns: number, tokens: number, form: Form = FORMS.chat_completions): string {
  return Array.from({ length: turns }, (_, i) => question(name, i + 1, form)).join(form.reply(textOf(tokens)));
}

type Wishes = { stream: boolean; tokens: number; direct: boolean };

/** Returns the fields of a chat completion. A direct request to the engine asks for ids and log-probabilities, as the gateway does. */
const chatFields = ({ stream, tokens, direct }: Wishes) => ({
  ...sampling({ stream }),
  max_tokens: tokens,
  ...(stream ? { stream_options: { include_usage: true } } : {}),
  ...(direct ? { return_token_ids: true, logprobs: true, top_logprobs: 0 } : {}),
});
const sampling = ({ stream }: Pick<Wishes, 'stream'>) => ({
  model: 'policy',
  temperature: 1,
  ...(stream ? { stream: true } : {}),
});

/**
 * The form of a protocol's requests: its route, the route of its streams if that is another, a question, the JSON between a question and
 * the next one for a reply with this text, the body before the questions, and the fields after them. In its streams a token's text follows
 * `text`. The last event of a reply that ends by its length begins with `end` and has no `text`, or an empty one.
 */
export type Form = {
  path: string;
  streamPath?: string;
  question: string;
  reply: (text: string) => string;
  before: string;
  close: string;
  fields: (wishes: Wishes) => Record<string, unknown>;
  text: string;
  end: string;
};
export const FORMS: Record<ProtocolName, Form> = {
  chat_completions: {
    path: chatCompletions.path,
    question: QUESTION,
    reply: replyMessage,
    before: '{"messages":[',
    close: '],',
    fields: chatFields,
    text: '"content":"',
    end: 'data: [DONE]',
  },
  completions: {
    path: completions.path,
    question: WORDS,
    reply: (text) => JSON.stringify(text).slice(1, -1),
    before: '{"prompt":"',
    close: '",',
    fields: chatFields,
    text: '"text":"',
    end: 'data: [DONE]',
  },
  messages: {
    path: messages.path,
    question: QUESTION,
    reply: replyMessage,
    before: '{"messages":[',
    close: '],',
    fields: ({ tokens, ...wishes }) => ({ ...sampling(wishes), max_tokens: tokens }),
    text: '"text":"',
    end: 'event: message_stop',
  },
  responses: {
    path: responses.path,
    question: QUESTION,
    reply: replyMessage,
    before: '{"input":[',
    close: '],',
    fields: ({ tokens, ...wishes }) => ({ ...sampling(wishes), max_output_tokens: tokens }),
    text: '"delta":"',
    end: 'event: response.incomplete',
  },
  gemini: {
    path: gemini.path,
    streamPath: gemini.path.replace(':generateContent', ':streamGenerateContent?alt=sse'),
    question: `{"role":"user","parts":[{"text":${JSON.stringify(WORDS)}}]}`,
    reply: (text) => `,{"role":"model","parts":[{"text":${JSON.stringify(text)}}]},`,
    before: '{"contents":[',
    close: '],',
    fields: ({ tokens }) => ({ generationConfig: { temperature: 1, maxOutputTokens: tokens } }),
    text: '"text":"',
    end: 'data: {"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"index":0,"finishReason":"MAX_TOKENS"',
  },
};

/** Returns the part of a body after its questions. */
export const after = (form: Form, wishes: Wishes): string => form.close + JSON.stringify(form.fields(wishes)).slice(1);

export const body = (asked: string, wishes: Wishes, form: Form = FORMS.chat_completions): string =>
  form.before + asked + after(form, wishes);
