import type { EngineConnection } from '../engines/connection.ts';
import { isObject } from '../json.ts';
import type { Message } from './converse.ts';
import { detokenize, withoutSpecial } from './detokenize.ts';
import { decode, encode, END, template, type ToyMessage } from './toy-tokenizer.ts';

/** How one engine's ids read, and what it makes of a request. */
export type Reading = {
  /** Whether it takes tool calls out of the text. */
  parses: boolean;
  /** Whether it shows a prompt of ids that ends within a character again before its reply (vllm#48853). */
  repeats: boolean;
  /** Ids as text, without special tokens. */
  decode: (ids: number[]) => string | Promise<string>;
  /** What was shown, without special tokens: with tools at hand, some engines show them. */
  plain: (shown: string) => string;
  /** A request's prompt, or what follows a completion whose turn covers so many of its messages: ids, or their text without special tokens. */
  written: (asked: Message, after?: { messages: number; completion: readonly number[] }) => number[] | string;
};

export const readingOfToy = (parses: boolean): Reading => ({
  parses,
  repeats: false,
  decode,
  plain: (shown) => shown,
  written({ prompt, messages, tools }, after) {
    if (typeof prompt === 'string') return encode(prompt);
    const all = messages as ToyMessage[];
    if (!after) return encode(template({ messages: all, tools }));
    return [...(after.completion.at(-1) === END ? [] : [END]), ...encode(`\n${template({ messages: all.slice(after.messages) })}`)];
  },
});

const SYSTEM = '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n';

/** The small model's template names no tools, and writes of a message its role and its text. */
export const readingOfSmallModel = (engine: EngineConnection, signal: AbortSignal): Reading => ({
  parses: true,
  repeats: true,
  decode: (ids) => (ids.length === 0 ? '' : detokenize(engine, ids, signal)),
  plain: withoutSpecial,
  written({ prompt, messages }, after) {
    if (typeof prompt === 'string') return withoutSpecial(prompt);
    const turns = (messages as Message[]).slice(after?.messages).map(({ role, content }) => `<|im_start|>${role}\n${textOf(content)}<|im_end|>\n`);
    return withoutSpecial(`${after ? '\n' : SYSTEM}${turns.join('')}<|im_start|>assistant\n`);
  },
});

export function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return Array.isArray(content) ? content.map((part) => (isObject(part) ? part.text : '')).join('\n') : '';
}
