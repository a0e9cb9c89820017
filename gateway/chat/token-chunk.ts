import { parseObject, type JsonObject } from '../json.ts';
import { COUNT, entry, ID, NUMBER, STRING, textEntry } from './logprob-entry.ts';

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

/**
 * One more token of a chat or a text. Most chunks are nothing else and have the same form. Reading that form and cutting out what is hidden
 * from the agent, without creating objects, takes a tenth of the work.
 */
export class TokenChunk {
  readonly index: number;
  readonly content: string;
  readonly tokenId: number;
  readonly logprob: number;
  readonly isText: boolean;
  /** The chunk's JSON without ids and log-probabilities. */
  readonly shown: string;
  readonly #data: string;

  private constructor(data: string, isText: boolean, [, head = '', index, content = '', logprob, middle = '', tokenId, tail = '']: RegExpExecArray) {
    this.#data = data;
    this.isText = isText;
    this.index = Number(index);
    this.content = content.includes('\\') ? (JSON.parse(content) as string) : content.slice(1, -1);
    this.logprob = Number(logprob);
    this.tokenId = Number(tokenId);
    this.shown = head + middle + tail;
  }

  /** Returns null for any other chunk. */
  static read(data: string): TokenChunk | null {
    if (data.length >= MAX_LENGTH) return null;
    const chat = CHAT.exec(data);
    if (chat) return new TokenChunk(data, false, chat);
    const text = TEXT.exec(data);
    return text && new TokenChunk(data, true, text);
  }

  /** Parses the chunk, for callers that need more than its text. */
  parse(): JsonObject {
    return parseObject(this.#data) ?? {};
  }
}

export type Chunk = JsonObject | TokenChunk;
export const asObject = (chunk: Chunk): JsonObject => (chunk instanceof TokenChunk ? chunk.parse() : chunk);
