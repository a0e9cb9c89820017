import { parseObject } from '../../json.ts';
import type { Wants } from '../completion.ts';
import type { ObjectChunk, TokenChunk as AnyTokenChunk } from '../engine.ts';
import { readChunk } from './read-reply.ts';

/** Patterns of JSON's grammar: a string, a number, and an integer that fits 32 bits. */
const PLAIN = String.raw`[^"\\\u0000-\u001f]*`;
const STRING = String.raw`"${PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})${PLAIN})*"`;
const NUMBER = String.raw`-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`;
const COUNT = String.raw`(?:0|[1-9]\d*)`;
const ID = String.raw`(?:0|[1-9]\d{0,8})`;

const BYTES = String.raw`(?:,"bytes":(?:null|\[(?:${COUNT}(?:,${COUNT})*)?\]))?`;
const ALTERNATIVE = String.raw`\{"token":${STRING},(?:"token_id":${COUNT},)?"logprob":${NUMBER}${BYTES}\}`;

/**
 * The form in which vLLM writes a token's log-probability in chat completions and in what it generates from ids. `logprob` is the number's
 * pattern.
 */
const entry = (logprob: string): string =>
  String.raw`\{"token":${STRING},(?:"token_id":${COUNT},)?"logprob":${logprob}${BYTES}(?:,"top_logprobs":\[(?:${ALTERNATIVE}(?:,${ALTERNATIVE})*)?\])?\}`;

/** The form in which it writes a text completion's chunk that has one token. */
const textEntry = (logprob: string): string =>
  String.raw`\{"text_offset":\[${COUNT}\],"token_logprobs":\[${logprob}\],"tokens":\[${STRING}\],"top_logprobs":\[(?:\{(?:${STRING}:${NUMBER}(?:,${STRING}:${NUMBER})*)?\}|null)?\]\}`;

const NULLS = String.raw`(?:,"(?:finish_reason|stop_reason|weight_versions|routed_experts)":null)*`;
/** Other fields of a chunk must be plain, and none of them hidden. */
const FIELD = String.raw`"(?!prompt_token_ids|usage|choices)\w+":(?:${STRING}|${NUMBER}|null|true|false)`;
const HEAD = String.raw`\{(?:${FIELD},)*"choices":\[\{"index":(${COUNT})`;
const TAIL = String.raw`${NULLS}\}\](?:,${FIELD})*\}`;
const CHAT = new RegExp(
  String.raw`^(${HEAD},"delta":\{"content":(${STRING})\}),"logprobs":\{"content":\[${entry(`(${NUMBER})`)}\]\}(${NULLS}),"token_ids":\[(${ID})\](${TAIL})$`,
);
const NO_PROMPT = '(?:,"prompt_token_ids":null)?';
const TEXT = new RegExp(
  String.raw`^(${HEAD},"text":(${STRING})),"logprobs":${textEntry(`(${NUMBER})`)}(${NULLS})${NO_PROMPT},"token_ids":\[(${ID})\]${NO_PROMPT}(${TAIL})$`,
);

const MAX_LENGTH = 16_384;
const HIDDEN: Wants = { logprobs: false, tokenIds: false, usage: false };

/**
 * One more token of a chat or a text. Most chunks are nothing else and have the same form. Reading that form and cutting out what is hidden
 * from the agent, without creating objects, takes a tenth of the work.
 */
export class TokenChunk implements AnyTokenChunk {
  readonly index: number;
  readonly content: string;
  readonly tokenId: number;
  readonly logprob: number;
  readonly isText: boolean;
  /** The chunk's JSON without ids and log-probabilities. */
  readonly shown: string;
  readonly #data: string;
  readonly #wants: Wants;

  private constructor(
    data: string,
    wants: Wants,
    isText: boolean,
    [, head = '', index, content = '', logprob, middle = '', tokenId, tail = '']: RegExpExecArray,
  ) {
    this.#data = data;
    this.#wants = wants;
    this.isText = isText;
    this.index = Number(index);
    this.content = content.includes('\\') ? (JSON.parse(content) as string) : content.slice(1, -1);
    this.logprob = Number(logprob);
    this.tokenId = Number(tokenId);
    this.shown = head + middle + tail;
  }

  /** Returns null for any other chunk. */
  static read(data: string, wants: Wants = HIDDEN): TokenChunk | null {
    if (data.length >= MAX_LENGTH) return null;
    const chat = CHAT.exec(data);
    if (chat) return new TokenChunk(data, wants, false, chat);
    const text = TEXT.exec(data);
    return text && new TokenChunk(data, wants, true, text);
  }

  asObject(): ObjectChunk {
    return readChunk(parseObject(this.#data) ?? {}, this.#wants);
  }
}

const OPENING = '"logprobs":{"content":[';
const ENTRY = new RegExp(entry(`(${NUMBER})`), 'y');

/**
 * Returns a reply's JSON with each list of log-probabilities as a list of numbers, the form of text completions, because an object for each
 * token is most of the cost of parsing a reply. A list in any other form stays. Every quote within a string is escaped, so the opening
 * never matches inside of a text.
 */
export function compactLogprobs(json: string): string {
  let compact = '';
  let from = 0;
  for (let at = json.indexOf(OPENING); at >= 0; at = json.indexOf(OPENING, at + 1)) {
    const numbers: string[] = [];
    let end = at + OPENING.length;
    do {
      ENTRY.lastIndex = end;
      const match = ENTRY.exec(json);
      if (!match) break;
      numbers.push(match[1] ?? '');
      end = ENTRY.lastIndex + 1;
    } while (json[end - 1] === ',');
    if (!json.startsWith(']}', end - 1)) continue;
    compact += `${json.slice(from, at)}"logprobs":{"token_logprobs":[${numbers.join(',')}]}`;
    from = end + 1;
  }
  return compact + json.slice(from);
}
