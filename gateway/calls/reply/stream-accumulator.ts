import { choicesOf } from '../../../store/calls/choices.ts';
import { NOTHING_SAMPLED, sampledTokens, type CallResult, type ChoiceResult } from '../../engines/call-result.ts';
import { completionCount, hide } from '../../engines/completion.ts';
import { asObject, isToken, type Chunk, type ObjectChunk, type TokenChunk } from '../../engines/engine.ts';
import { badReply } from '../../engines/engine-failed.ts';
import { isObject, type JsonObject } from '../../json.ts';

/** Assembles a stream's chunks into the tokens for the trainer and the reply as the agent would have got it whole. */
export class StreamAccumulator {
  prompt: number[] | null = null;
  /** The number of sampled tokens as the engine counted them. */
  #counted: number | null = null;
  #head: JsonObject = {};
  readonly #choices: ChoiceAccumulator[] = [];
  readonly #expected: number;
  readonly #keepsLogprobs: boolean;

  /** `n` is the number of replies. `logprobs` is true when the agent gets log-probabilities, so that the reply has them too. */
  constructor({ n, logprobs }: { n: number; logprobs: boolean }) {
    this.#expected = n;
    this.#keepsLogprobs = logprobs;
  }

  add(chunk: Chunk): void {
    if (isToken(chunk) && this.#head.id && !this.#keepsLogprobs) return this.#choice(chunk.index).addToken(chunk);
    this.#addObject(asObject(chunk));
  }

  #choice(index: number): ChoiceAccumulator {
    if (!Number.isInteger(index) || index < 0 || index >= this.#expected)
      throw badReply(`has a choice that is none of the ${this.#expected} asked for`);
    return (this.#choices[index] ??= new ChoiceAccumulator(this.#keepsLogprobs));
  }

  #addObject({ shown, prompt, usage, sampled }: ObjectChunk): void {
    if (!this.#head.id) {
      const { choices: _, ...head } = hide(shown, { tokenIds: false, logprobs: false, usage: false });
      this.#head = head;
    }
    this.prompt ??= prompt;
    if (usage) {
      this.#head.usage = usage;
      this.#counted = completionCount(usage);
    }
    for (const [i, choice] of choicesOf(shown).entries()) this.#choice(indexOf(choice)).add(choice, sampled[i]);
  }

  get hasTokens(): boolean {
    return this.#choices.some((choice) => choice.result.completion !== null);
  }

  /** True when every reply has ended. A stream asks for each token, so this creates no objects. */
  get isFinished(): boolean {
    if (this.#choices.length < this.#expected) return false;
    for (const choice of this.#choices) if (!choice || choice.result.finishReason === null) return false;
    return true;
  }

  get hasBegun(): boolean {
    return Object.values(this.#head).some((value) => value !== undefined);
  }

  result(): CallResult {
    const choices = this.#choices.map((choice, index) => choice.whole(index)).filter(Boolean);
    const reply = this.hasBegun ? { ...this.#head, object: wholeObject(this.#head.object), choices } : null;
    return {
      prompt: this.prompt,
      choices: this.#choices.map((choice) => choice.result).filter(Boolean),
      counted: this.#counted,
      reply,
    };
  }

  /** Returns the chunks that end a reply here by its length, as if the engine had been told of that length. */
  cutShort(): ObjectChunk[] {
    const { usage: _, ...head } = this.#head;
    const empty = head.object === 'text_completion' ? { text: '' } : { delta: {} };
    const open = Array.from({ length: this.#expected }, (_each, index) => index).filter(
      (index) => this.#choice(index).result.finishReason === null,
    );
    const ends = open.map((index) => ({
      ...head,
      choices: [{ index, ...empty, logprobs: null, finish_reason: 'length', stop_reason: null }],
    }));
    const [prompt_tokens, completion_tokens] = [this.prompt?.length ?? 0, sampledTokens(this.result())];
    const usage = { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens };
    return [...ends, { ...head, choices: [], usage }].map((chunk) => ownChunk(chunk, 'usage' in chunk ? usage : null));
  }
}

/** A chunk that no engine sent. */
const ownChunk = (shown: JsonObject, usage: unknown): ObjectChunk => ({ shown, prompt: null, usage, sampled: [] });

const indexOf = ({ index = 0 }: JsonObject): number => (typeof index === 'number' ? index : -1);

const wholeObject = (object: unknown): unknown => (object === 'chat.completion.chunk' ? 'chat.completion' : object);

type Tool = { id?: unknown; type: string; function: { name: string; arguments: string } };

class ChoiceAccumulator {
  readonly result: ChoiceResult = { ...NOTHING_SAMPLED, finishReason: null };
  #text: string | null = null;
  /** The stop string that ended the reply. */
  #matched: { stop_reason?: string } = {};
  readonly #message: JsonObject = { role: 'assistant', content: null };
  readonly #tools = new Map<number, Tool>();
  #logprobs: JsonObject | null = null;
  readonly #keepsLogprobs: boolean;

  constructor(keepsLogprobs: boolean) {
    this.#keepsLogprobs = keepsLogprobs;
  }

  add(choice: JsonObject, sampled: ObjectChunk['sampled'][number] | undefined): void {
    const { result } = this;
    if (sampled?.completion) append((result.completion ??= []), sampled.completion);
    if (sampled?.logprobs) append((result.logprobs ??= []), sampled.logprobs);
    if (sampled?.mask) append((result.mask ??= []), sampled.mask);
    if (this.#keepsLogprobs && isObject(choice.logprobs)) this.#logprobs = extended(this.#logprobs, choice.logprobs);
    result.versions = sampled?.versions ?? result.versions;
    result.experts = sampled?.experts ?? result.experts;
    if (typeof choice.stop_reason === 'string') this.#matched = { stop_reason: choice.stop_reason };
    if (typeof choice.finish_reason === 'string') result.finishReason = choice.finish_reason;
    if (typeof choice.text === 'string') this.#text = (this.#text ?? '') + choice.text;
    if (isObject(choice.delta)) this.#extend(choice.delta);
  }

  addToken({ tokenId, logprob, content, isText }: TokenChunk): void {
    (this.result.completion ??= []).push(tokenId);
    (this.result.logprobs ??= []).push(logprob);
    if (isText) this.#text = (this.#text ?? '') + content;
    else this.#message.content = joined(this.#message.content, content);
  }

  whole(index: number): JsonObject {
    const { finishReason: finish_reason } = this.result;
    const end = { ...(this.#logprobs ? { logprobs: this.#logprobs } : {}), finish_reason, ...this.#matched };
    if (this.#text !== null) return { index, text: this.#text, ...end };
    const calls = [...this.#tools.values()];
    return { index, message: calls.length > 0 ? { ...this.#message, tool_calls: calls } : this.#message, ...end };
  }

  #extend(delta: JsonObject): void {
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

/** Appends in a loop, because a reply may come in one chunk with more tokens than a function takes arguments. */
function append<T>(list: T[], more: readonly T[]): void {
  for (const each of more) list.push(each);
}

/** Continues log-probabilities: one list for a chat, several parallel ones for a text. */
function extended(before: JsonObject | null, more: JsonObject): JsonObject {
  const lists = before ?? {};
  for (const [key, value] of Object.entries(more)) {
    const list = lists[key];
    if (Array.isArray(list) && Array.isArray(value)) append<unknown>(list, value);
    else lists[key] = Array.isArray(value) ? [...value] : value;
  }
  return lists;
}

const joined = (before: unknown, text: string): string => (typeof before === 'string' ? before + text : text);
