import { chatCompletions } from '../../../gateway/protocols/chat-completions.ts';
import { completions } from '../../../gateway/protocols/completions.ts';
import { messages } from '../../../gateway/protocols/messages/messages.ts';
import { responses } from '../../../gateway/protocols/responses/responses.ts';
import type { ProtocolName } from '../../../store/schema.ts';
import { textOf } from '../engine/replies.ts';

/** A message with a place for a trial's name and a number: no two calls say the same. */
const WORDS = '%s asks for the %08d. time: which file holds the handler of the request, and what does its last test say of the failure that we saw yesterday evening?';
const QUESTION = `{"role":"user","content":"${WORDS}"}`;

export const question = (name: string, number: number, { question: words }: Form = FORMS.chat_completions): string =>
  words.replace('%s', name).replace('%08d', String(number).padStart(8, '0'));

const replyMessage = (text: string): string => `,{"role":"assistant","content":${JSON.stringify(text)}},`;

/** Where a trial is asked in this protocol, by its path in chat completions. */
export const pathOf = (path: string, { path: own }: Form): string => path.replace(chatCompletions.path, own);

/** The first `turns` questions of a conversation, each but the last with its reply. */
export function conversation(name: string, turns: number, tokens: number, form: Form = FORMS.chat_completions): string {
  return Array.from({ length: turns }, (_, i) => question(name, i + 1, form)).join(form.reply(textOf(tokens)));
}

type Wishes = { stream: boolean; tokens: number; direct: boolean };

/** Who asks the engine itself asks for what the gateway asks for: ids and log-probabilities. */
const chatFields = ({ stream, tokens, direct }: Wishes) => ({
  ...sampling({ stream }),
  max_tokens: tokens,
  ...(stream ? { stream_options: { include_usage: true } } : {}),
  ...(direct ? { return_token_ids: true, logprobs: true, top_logprobs: 0 } : {}),
});
const sampling = ({ stream }: Pick<Wishes, 'stream'>) => ({ model: 'policy', temperature: 1, ...(stream ? { stream: true } : {}) });

/**
 * How a protocol asks: its route, a question, what stands between that and the next one for a reply with this text, what a body has
 * before its questions, and the fields after them.
 * In its streams a token's text stands behind `text`; the last event of a reply that ends by its length begins as `end`, and has no `text`.
 */
export type Form = { path: string; question: string; reply: (text: string) => string; before: string; close: string; fields: (wishes: Wishes) => Record<string, unknown>; text: string; end: string };
export const FORMS: Record<ProtocolName, Form> = {
  chat_completions: { path: chatCompletions.path, question: QUESTION, reply: replyMessage, before: '{"messages":[', close: '],', fields: chatFields, text: '"content":"', end: 'data: [DONE]' },
  completions: { path: completions.path, question: WORDS, reply: (text) => JSON.stringify(text).slice(1, -1), before: '{"prompt":"', close: '",', fields: chatFields, text: '"text":"', end: 'data: [DONE]' },
  messages: { path: messages.path, question: QUESTION, reply: replyMessage, before: '{"messages":[', close: '],', fields: ({ tokens, ...wishes }) => ({ ...sampling(wishes), max_tokens: tokens }), text: '"text":"', end: 'event: message_stop' },
  responses: { path: responses.path, question: QUESTION, reply: replyMessage, before: '{"input":[', close: '],', fields: ({ tokens, ...wishes }) => ({ ...sampling(wishes), max_output_tokens: tokens }), text: '"delta":"', end: 'event: response.incomplete' },
};

/** What of a body follows its questions. */
export const after = (form: Form, wishes: Wishes): string => form.close + JSON.stringify(form.fields(wishes)).slice(1);

export const body = (asked: string, wishes: Wishes, form: Form = FORMS.chat_completions): string => form.before + asked + after(form, wishes);
