import { stringifyExact } from '../../../core/exact-json.ts';
import { choicesOf } from '../../../store/calls/choices.ts';
import type { TokenChunk } from '../../engines/engine.ts';
import type { Failure } from '../../failure.ts';
import type { JsonObject } from '../../json.ts';
import { asEvent } from '../../reply-formats.ts';
import { parseMessage, type ToolCall } from '../message-parts.ts';
import type { EventWriter } from '../protocol.ts';
import { usageOf } from '../usage.ts';
import { contentErrorBody } from './errors.ts';
import {
  callPart,
  candidate,
  finishReasonOf,
  logprobsResult,
  replyHead,
  saidParts,
  usageMetadata,
} from './from-chat.ts';

/** The parts of a candidate that are sent at its end. */
type Candidate = { finish: unknown; calls: Map<number, ToolCall> };

/**
 * Writes a chat reply's chunks as Gemini's events, each a whole reply with what is new. A call of a function has no parts in Gemini, so
 * calls are sent at the end, together with the finish reason and the counts.
 */
export class ContentEvents implements EventWriter {
  readonly #callId: string;
  readonly #showsThoughts: boolean;
  readonly #candidates = new Map<number, Candidate>();
  #head: JsonObject | null = null;
  #usage: unknown = null;
  #promptTokens: number | null = null;

  constructor(callId: string, { showsThoughts }: { showsThoughts: boolean }) {
    this.#callId = callId;
    this.#showsThoughts = showsThoughts;
  }

  write(chunk: JsonObject, promptTokens: number | null): string {
    this.#head ??= replyHead(this.#callId, chunk.model);
    this.#promptTokens ??= promptTokens;
    this.#usage = chunk.usage ?? this.#usage;
    let events = '';
    for (const choice of choicesOf(chunk)) {
      const index = typeof choice.index === 'number' ? choice.index : 0;
      const own = this.#candidate(index);
      const message = parseMessage(choice.delta);
      own.finish = choice.finish_reason ?? own.finish;
      for (const tool of message.tools) addPart(own.calls, tool);
      const parts = saidParts(message, this.#showsThoughts);
      if (parts.length > 0) events += this.#event([candidate(index, parts, logprobsResult(choice))]);
    }
    return events;
  }

  pass({ index, content }: Pick<TokenChunk, 'index' | 'content'>): string | null {
    if (!this.#head) return null;
    this.#candidate(index);
    return content === '' ? '' : this.#event([candidate(index, [{ text: content }])]);
  }

  end(): string {
    const ends = [...this.#candidates].map(([index, { finish, calls }]) =>
      candidate(index, [...calls.values()].map(callPart), { finishReason: finishReasonOf(finish) }),
    );
    return this.#event(ends, { usageMetadata: usageMetadata(usageOf(this.#usage, this.#promptTokens)) });
  }

  /** Google's client knows an error in a stream by JSON that is not an event. */
  fail(failure: Failure): string {
    return `${JSON.stringify(contentErrorBody(failure))}\n\n`;
  }

  #candidate(index: number): Candidate {
    const known = this.#candidates.get(index);
    if (known) return known;
    const begun = { finish: null, calls: new Map() };
    this.#candidates.set(index, begun);
    return begun;
  }

  #event(candidates: JsonObject[], more: JsonObject = {}): string {
    return asEvent(stringifyExact({ candidates, ...this.#head, ...more }));
  }
}

function addPart(calls: Map<number, ToolCall>, { index, id, name, arguments: part }: ToolCall): void {
  const known = calls.get(index);
  if (known) known.arguments += part;
  // The rest of an unknown call has no place.
  else if (name !== null) calls.set(index, { index, id, name, arguments: part });
}
