import { decode, decodeWithSpecial, END } from '../toy-tokenizer.ts';
import type { Span } from '../toy-engine.ts';

export type FinishReason =
  | { type: 'stop'; matched: number | string }
  | { type: 'length'; length: number }
  | { type: 'abort'; message: string; status_code?: number | null; err_type?: string | null };

/** The settings of a request's `sampling_params`, with their defaults. */
export type Sampling = {
  /** Null: as many as fit. */
  maxNewTokens: number | null;
  stop: string[];
  stopTokenIds: number[];
  ignoreEos: boolean;
  noStopTrim: boolean;
  skipSpecialTokens: boolean;
  streamInterval: number | null;
};

/** The tokens that a reply will have, and whether it ends by itself after them. */
export type Plan = { tokens: readonly number[]; ends: boolean };

/** One reply that is being sampled. Its tokens are planned, and each step of the scheduler adds one. */
export class Sequence {
  readonly output: number[] = [];
  finished: FinishReason | null = null;
  /** The reason by which it ends at its next step. */
  toFinish: FinishReason | null = null;
  /** True when it was aborted before it ran, so that no batch reports its end. */
  endedInQueue = false;
  /** True while it had to give its KV up and waits for its prefill. */
  isRetracted = false;
  retractions = 0;
  cachedTokens = 0;
  /** The number of tokens that were reported. */
  sent = 0;
  maxNewTokens = 0;
  readonly #changes: { version: string; tokens: number }[] = [];

  readonly rid: string;
  readonly prompt: readonly number[];
  readonly #plan: Plan;
  readonly #sampling: Sampling;
  readonly stream: boolean;
  /** Sequences of different keys share no KV. */
  readonly cacheKey: string;
  /** Called when its tokens so far are to be sent. */
  report: () => void = () => {};

  constructor(given: {
    rid: string;
    prompt: readonly number[];
    plan: Plan;
    sampling: Sampling;
    stream: boolean;
    cacheKey: string;
  }) {
    this.rid = given.rid;
    this.prompt = given.prompt;
    this.#plan = given.plan;
    this.#sampling = given.sampling;
    this.stream = given.stream;
    this.cacheKey = given.cacheKey;
  }

  /** Samples the next token, and ends the sequence if it meets a condition for that. */
  step(): void {
    const { tokens, ends } = this.#plan;
    const next = tokens[this.output.length];
    const isCut = next === undefined && !ends;
    if (!isCut && this.output.length < this.maxNewTokens) this.output.push(next ?? END);
    const planned = tokens.length + (ends ? 1 : 0);
    this.finished =
      this.toFinish ??
      this.#matchedString() ??
      this.#matchedToken() ??
      (this.output.length >= Math.min(this.maxNewTokens, planned)
        ? { type: 'length', length: this.output.length }
        : null);
  }

  #matchedString(): FinishReason | null {
    const matched = this.#sampling.stop.find((each) => this.#tail(each).includes(each));
    return matched === undefined ? null : { type: 'stop', matched };
  }

  #matchedToken(): FinishReason | null {
    const last = this.output.at(-1);
    const { ignoreEos, stopTokenIds } = this.#sampling;
    if (last === undefined || ignoreEos || (last !== END && !stopTokenIds.includes(last))) return null;
    return { type: 'stop', matched: last };
  }

  /** True when this step's tokens are to be reported. */
  get isDue(): boolean {
    if (this.finished) return true;
    const unsent = this.output.length - this.sent;
    if (!this.stream) return this.output.length % REPORTED_WHOLE === 0;
    const interval = this.#sampling.streamInterval ?? 1;
    return (interval === 1 || unsent >= interval || (this.sent === 0 && unsent > 0)) && !this.#mayStop();
  }

  /** True when the text ends as a stop string begins. Its tokens are then reported with later ones. */
  #mayStop(): boolean {
    return this.#sampling.stop.some((stop) => {
      const said = this.#tail(stop);
      return Array.from({ length: stop.length }, (_, i) => stop.slice(0, i + 1)).some((start) => said.endsWith(start));
    });
  }

  /** The end of the text, in which a stop string would be that the last token completes. A token has a byte or more. */
  #tail(stop: string): string {
    return decode(this.output.slice(-4 * (stop.length + 1)));
  }

  /** Notes that the tokens so far were sampled by weights that have just been replaced. */
  noteChange(version: string): void {
    if (this.output.length > 0) this.#changes.push({ version, tokens: this.output.length });
  }

  spans(current: string): Span[] {
    const ends = [...this.#changes, { version: current, tokens: this.output.length }];
    const spans: Span[] = [];
    for (const { version, tokens: end } of ends) {
      const last = spans.at(-1);
      if (last && end <= last.end) continue;
      if (last?.version === version) last.end = end;
      else spans.push({ version, start: last?.end ?? 0, end });
    }
    return spans;
  }

  /** The text so far, of whole characters until it is finished, and without what ended it. */
  get text(): string {
    const { finished, output } = this;
    const sampling = this.#sampling;
    const read = sampling.skipSpecialTokens ? decode : decodeWithSpecial;
    const matched = finished?.type === 'stop' ? finished.matched : null;
    const text = read(typeof matched === 'number' && !sampling.noStopTrim ? output.slice(0, -1) : output);
    if (!finished) return text.replace(/\uFFFD+$/, '');
    if (typeof matched !== 'string' || !text.includes(matched)) return text;
    return text.slice(0, text.indexOf(matched) + (sampling.noStopTrim ? matched.length : 0));
  }
}

/** A reply that is not streamed is reported each time it has so many tokens more. Nobody sees this, but a lost client is noticed. */
const REPORTED_WHOLE = 50;
