import type { Socket } from 'node:net';
import { stampNow } from './clock.ts';
import { conversationIds } from './conversation.ts';
import { chatChunk, stampedToken, textChunk, type StreamParts } from './replies.ts';

type Stream = { socket: Socket; tokens: TokenWriters; received: string; left: number; due: number; ending: string };

/** Functions that write a stream's first token, its next ones, and its last one. */
type TokenWriters = Record<'first' | 'next' | 'last', (stamp: string) => string>;
export const CHAT: TokenWriters = {
  first: stampedToken(20, (token) => chatChunk(token, false)),
  next: stampedToken(10, (token) => chatChunk(token, false)),
  last: stampedToken(10, (token) => chatChunk(token, true)),
};
export const TEXT: TokenWriters = {
  first: stampedToken(20, (token) => textChunk(token, { prompt: conversationIds(1) })),
  next: stampedToken(10, (token) => textChunk(token, {})),
  last: stampedToken(10, (token) => textChunk(token, { isLast: true })),
};

/**
 * Writes a token to each stream every `paceMs`, by the clock and not relative to the token before. Each token's text is the time at
 * which it was written, the first one's also the time of the request, so that the reader knows the delay.
 */
export class Schedule {
  paceMs = 100;
  aborted = 0;
  tokens = 0;
  ended = 0;
  /** Streams in the order in which they are due. All have the same pace, so this is the order of insertion. */
  readonly #queue: Stream[] = [];
  #head = 0;
  #timer: NodeJS.Timeout | null = null;

  add(socket: Socket, tokens: TokenWriters, { opening, ending }: StreamParts, count: number): void {
    const received = stampNow();
    socket.write(opening, 'latin1');
    this.#queue.push({ socket, tokens, received, left: count, due: performance.now() + this.paceMs, ending });
    this.#timer ??= setInterval(() => this.#tick(), 1);
  }

  #tick(): void {
    const now = performance.now();
    for (let stream = this.#queue[this.#head]; stream && stream.due <= now; stream = this.#queue[this.#head]) {
      this.#head += 1;
      if (stream.socket.destroyed) this.aborted += 1;
      else if (this.#writeToken(stream)) this.#queue.push(stream);
    }
    if (this.#head > 10_000) {
      this.#queue.splice(0, this.#head);
      this.#head = 0;
    }
    if (this.#head < this.#queue.length || !this.#timer) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }

  /** Writes the stream's next token. Returns true when more tokens follow. */
  #writeToken(stream: Stream): boolean {
    const now = stampNow();
    const { tokens, received } = stream;
    stream.received = '';
    stream.left -= 1;
    stream.due += this.paceMs;
    this.tokens += 1;
    if (stream.left > 0) {
      stream.socket.write(received ? tokens.first(received + now) : tokens.next(now), 'latin1');
      return true;
    }
    stream.socket.write(tokens.last(now) + stream.ending, 'latin1');
    this.ended += 1;
    return false;
  }
}
