import { EngineServer } from './engine-server.ts';
import type { ServerResponse } from 'node:http';
import { misspell, type ToyMessage } from './toy-tokenizer.ts';
import type { GeneratedReply } from '../scenarios/generated.ts';
import { parseJson } from '../../../core/json.ts';

export type Line = { text: string; ends?: boolean; spelled?: (text: string) => number[] };
/** Fields that a request may carry through the gateway: the toy engine's answer, and the name under which to log it. */
export type Cue = { lines: Line[]; log: string };
/** A request to an engine's route. `messages` are there in chats. */
export type ToyRequest = { path: string; body: ToyBody; response: ServerResponse };
export type ToyBody = Record<string, unknown> & {
  messages: ToyMessage[];
  tools?: unknown;
  stream?: boolean;
  n?: number;
  cue?: Cue;
  chat_template_kwargs?: { cue?: Cue };
  answer?: Line;
};
export type Span = { version: string; start: number; end: number };

/** Spans of a reply whose first half version 1 of a run sampled, and whose second half version 2. */
export const HALVES = (tokens: number): Span[] => {
  const half = Math.floor(tokens / 2);
  return [
    { version: 'run@1', start: 0, end: half },
    { version: 'run@2', start: half, end: tokens },
  ];
};

/** True for a request whose text no tokenizer takes: it has half a surrogate pair, as it is or within a call's arguments, which are parsed. */
export function hasHalf({ messages, ...rest }: ToyBody): boolean {
  const calls = (Array.isArray(messages) ? messages : []).flatMap((message) => message.tool_calls ?? []);
  const parsed = calls.map((call) => parseJson(call.function?.arguments ?? ''));
  return [messages, rest, parsed].some((value) => /(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(JSON.stringify(value) ?? ''));
}
export const NOT_TOKENIZED = 'TextInputSequence must be str: a text has half a surrogate pair';

/** The common part of all toy engines: replies come from `script`, and requests and replies are logged. */
export abstract class ToyEngine extends EngineServer {
  weightVersion = 'default';
  /** The texts of the next replies, whose ids are misspelled on purpose. `ends: false` means that a reply is cut by its length. */
  script: Line[] = [];
  /** The most tokens of a prompt with its completion. */
  context = 100_000;
  /** True when it parses tool calls out of the text. */
  parses = true;
  /** The log-probability of a sampled token. */
  logprob: (id: number) => number = (id) => -((id % 7) + 1) / 4;
  /** Makes a route fail, by a status or by a cut connection. */
  fault: (path: string) => number | 'cut' | null = () => null;
  /** Runs before a route answers, and may change the request. */
  before: (asked: ToyRequest) => Promise<void> | void = () => {};
  /** The prompts and replies, in order. With a cue it is logged under the cue's name. */
  readonly generated: GeneratedReply[] = [];
  readonly logs = new Map<string, GeneratedReply[]>();

  /** Returns the `i`th reply to a request: its ids without their end, and whether it ends by itself. */
  protected lineOf(cue: Cue | undefined, i: number, answer: Line): { spelled: number[]; ends: boolean } {
    const { text, ends = true, spelled = misspell } = cue?.lines[i] ?? this.script.shift() ?? answer;
    return { spelled: spelled(text), ends };
  }

  protected log(cue: Cue | undefined, generated: GeneratedReply): void {
    if (cue) this.logs.set(cue.log, [...(this.logs.get(cue.log) ?? []), generated]);
    else this.generated.push(generated);
  }

  protected versionsOf(spans: readonly Span[]): (number | null)[] {
    return spans.flatMap(({ version, start, end }) => Array<number | null>(end - start).fill(versionOf(version)));
  }
}

function versionOf(weightVersion: string): number | null {
  const version = /@(\d+)$/.exec(weightVersion)?.[1];
  return version === undefined ? null : Number(version);
}
