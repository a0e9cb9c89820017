import type { EngineConnection } from '../../../gateway/engines/connection.ts';
import { isObject } from '../../../gateway/json.ts';
import type { Message, Step, ToolCall } from '../scenarios/converse.ts';
import { pythonJson } from './python-json.ts';
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

const SYSTEM = 'You are a helpful AI assistant named SmolLM, trained by Hugging Face';

/**
 * The reading of the small model. Its own template writes a message's role and text. A request with tools has the template that
 * `gpu-workers/make_small_model.py` adds, which also writes tools and calls.
 */
export const readingOfSmallModel = (engine: EngineConnection, signal: AbortSignal): Reading => ({
  parses: true,
  repeats: true,
  decode: (ids) => (ids.length === 0 ? '' : detokenize(engine, ids, signal)),
  plain: withoutSpecial,
  written({ prompt, messages, tools }, after) {
    if (typeof prompt === 'string') return withoutSpecial(prompt);
    const system = `<|im_start|>system\n${SYSTEM}${tools ? toolsInSystem(tools as Tool[]) : ''}<|im_end|>\n`;
    const turns = (messages as Message[])
      .slice(after?.messages)
      .map((each) => `<|im_start|>${each.role}\n${tools ? textWithCalls(each) : textOf(each.content)}<|im_end|>\n`);
    return withoutSpecial(`${after ? '\n' : system}${turns.join('')}<|im_start|>assistant\n`);
  },
});

type Tool = { function: { name: string; description?: string; parameters?: unknown; strict?: boolean } };

/** vLLM gives a template each tool in its own order of fields, with null for a description or parameters that the agent did not send. */
function toolsInSystem(tools: Tool[]): string {
  const lines = tools.map(({ function: { name, description = null, parameters = null, strict } }) => {
    const given = { name, description, parameters, ...(strict === undefined ? {} : { strict }) };
    return `${pythonJson({ type: 'function', function: given })}\n`;
  });
  return `\n\nYou may call these functions:\n<tools>\n${lines.join('')}</tools>
To call one, answer with a JSON object of its name and its arguments within tags:
<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>`;
}

function textWithCalls({ role, content, tool_calls: calls = [] }: Message): string {
  const text = textOf(content);
  if (role === 'tool') return `<tool_response>\n${text}\n</tool_response>`;
  const written = (calls as ToolCall[]).map(({ function: { name, arguments: given } }) => {
    const call = `{"name": ${pythonJson(name)}, "arguments": ${pythonJson(objectIn(given))}}`;
    return `<tool_call>\n${call}\n</tool_call>`;
  });
  return [...(text === '' ? [] : [text]), ...written].join('\n');
}

/** Returns a call's arguments as vLLM gives them to a template: an empty object if they are no JSON object, as those of a cut call. */
function objectIn(given: string): unknown {
  try {
    const value: unknown = JSON.parse(given);
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

export function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return Array.isArray(content) ? content.map((part) => (isObject(part) ? part.text : '')).join('\n') : '';
}
