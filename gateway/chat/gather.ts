import { hide, onlyChoice } from './hide.ts';
import { isObject } from '../json.ts';
import { completionCount, tokensOf, versionsOf, type LabelSpan, type Tokens } from './tokens.ts';

/** Puts a stream's chunks together: the tokens for the trainer, and the reply as the agent would have got it whole. */
export class Gather {
  readonly tokens: Tokens = { prompt: null, completion: null, logprobs: null };
  finishReason: string | null = null;
  versions: LabelSpan[] | null = null;
  /** How many tokens the engine says it sampled. */
  counted: number | null = null;
  #head: Record<string, unknown> = {};
  readonly #message: Record<string, unknown> = { role: 'assistant', content: null };
  readonly #tools = new Map<number, { id?: unknown; type: string; function: { name: string; arguments: string } }>();

  add(chunk: Record<string, unknown>): void {
    const { choices: _, ...head } = hide(chunk, { tokenIds: false, logprobs: false, usage: true });
    for (const [key, value] of Object.entries(head)) if (value !== null) this.#head[key] = value;
    this.counted = completionCount(chunk.usage) ?? this.counted;
    const choice = onlyChoice(chunk);
    const { prompt, completion, logprobs } = tokensOf(chunk, choice);
    this.tokens.prompt ??= prompt;
    if (completion) (this.tokens.completion ??= []).push(...completion);
    if (logprobs) (this.tokens.logprobs ??= []).push(...logprobs);
    this.versions = versionsOf(choice) ?? this.versions;
    if (typeof choice?.finish_reason === 'string') this.finishReason = choice.finish_reason;
    if (isObject(choice?.delta)) this.#extend(choice.delta);
  }

  /** Null when nothing came. */
  reply(): Record<string, unknown> | null {
    if (Object.keys(this.#head).length === 0) return null;
    const calls = [...this.#tools.values()];
    const message = calls.length > 0 ? { ...this.#message, tool_calls: calls } : this.#message;
    return { ...this.#head, object: 'chat.completion', choices: [{ index: 0, message, finish_reason: this.finishReason }] };
  }

  #extend(delta: Record<string, unknown>): void {
    for (const [key, value] of Object.entries(delta)) {
      if (key === 'tool_calls') for (const call of Array.isArray(value) ? value : []) this.#extendTool(call);
      else if (key === 'role') this.#message.role = value;
      else if (typeof value === 'string') this.#message[key] = joined(this.#message[key], value);
      else if (value !== null) this.#message[key] = value;
    }
  }

  #extendTool(part: unknown): void {
    if (!isObject(part)) return;
    const index = Number(part.index ?? 0);
    const call = this.#tools.get(index) ?? { type: 'function', function: { name: '', arguments: '' } };
    this.#tools.set(index, call);
    call.id ??= part.id;
    if (!isObject(part.function)) return;
    if (typeof part.function.name === 'string') call.function.name += part.function.name;
    if (typeof part.function.arguments === 'string') call.function.arguments += part.function.arguments;
  }
}

const joined = (before: unknown, text: string): string => (typeof before === 'string' ? before + text : text);

