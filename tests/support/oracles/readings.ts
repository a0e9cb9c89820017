import type { EngineConnection } from '../../../gateway/engines/connection.ts';
import { isObject } from '../../../gateway/json.ts';
import type { Message, Step } from '../scenarios/converse.ts';
import { isSglangText } from './sglang-text-oracle.ts';
import { detokenize, withoutSpecial } from '../fakes/detokenize.ts';
import { decode, encode, END, template, type ToyMessage } from '../fakes/toy-tokenizer.ts';

/** How one engine's ids read as text, and how it renders a request. */
export type Reading = {
  /** True when it parses tool calls out of the text. */
  parses: boolean;
  /** True when it shows a prompt of ids that ends within a character again before its reply (vllm#48853). */
  repeats: boolean;
  /** Tells whether an agent saw the text of its reply's ids, for an engine that shows texts in its own way. */
  isShown?: (step: Step, whole: string) => boolean;
  /** Returns ids as text without special tokens. */
  decode: (ids: number[]) => string | Promise<string>;
  /** Removes special tokens from a shown text, because some engines show them when a request has tools. */
  plain: (shown: string) => string;
  /**
   * Returns a request's prompt, or what follows a completion whose turn covers so many of its messages: as ids, or as text without special
   * tokens.
   */
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
    return [
      ...(after.completion.at(-1) === END ? [] : [END]),
      ...encode(`\n${template({ messages: all.slice(after.messages) })}`),
    ];
  },
});

export const readingOfSglang = (parses: boolean): Reading => ({
  ...readingOfToy(parses),
  isShown: (step, whole) => isSglangText(step, whole, parses),
});

const SYSTEM = '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n';

/** The reading of the small model, whose template names no tools and writes a message's role and text. */
export const readingOfSmallModel = (engine: EngineConnection, signal: AbortSignal): Reading => ({
  parses: true,
  repeats: true,
  decode: (ids) => (ids.length === 0 ? '' : detokenize(engine, ids, signal)),
  plain: withoutSpecial,
  written({ prompt, messages }, after) {
    if (typeof prompt === 'string') return withoutSpecial(prompt);
    const turns = (messages as Message[])
      .slice(after?.messages)
      .map(({ role, content }) => `<|im_start|>${role}\n${textOf(content)}<|im_end|>\n`);
    return withoutSpecial(`${after ? '\n' : SYSTEM}${turns.join('')}<|im_start|>assistant\n`);
  },
});

export function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return Array.isArray(content) ? content.map((part) => (isObject(part) ? part.text : '')).join('\n') : '';
}
