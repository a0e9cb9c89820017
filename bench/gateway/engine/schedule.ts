import type { Socket } from 'node:net';
import { stampNow } from './clock.ts';
import { stampedToken, type StreamParts } from './replies.ts';

type Stream = { socket: Socket; received: string; left: number; due: number; ending: string };

const FIRST = stampedToken(20, false);
const NEXT = stampedToken(10, false);
const LAST = stampedToken(10, true);

/**
 * Streams that get a token every `paceMs`, by the clock and not by the token before. Each token's text is the time at which it
 * was written, the first one's also that at which the request came: whoever reads it knows how long it was on its way.
 */
export class Schedule {
  paceMs = 100;
  aborted = 0;
  tokens = 0;
  ended = 0;
  /** The pace is the same for all, so they are due in the order in which they were put here. */
  readonly #queue: Stream[] = [];
  #head = 0;
  #timer: NodeJS.Timeout | null = null;

  add(socket: Socket, { opening, ending }: StreamParts, count: number): void {
    const received = stampNow();
    socket.write(opening, 'latin1');
    this.#queue.push({ socket, received, left: count, due: performance.now() + this.paceMs, ending });
    this.#timer ??= setInterval(() => this.#tick(), 1);
  }

  #tick(): void {
    const now = performance.now();
    for (let stream = this.#queue[this.#head]; stream && stream.due <= now; stream = this.#queue[this.#head]) {
      this.#head += 1;
      if (stream.socket.destroyed) this.aborted += 1;
      else if (this.#say(stream)) this.#queue.push(stream);
    }
    if (this.#head > 10_000) {
      this.#queue.splice(0, this.#head);
      this.#head = 0;
    }
    if (this.#head < this.#queue.length || !this.#timer) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }

  /** Whether there is more to say. */
  #say(stream: Stream): boolean {
    const now = stampNow();
    const first = stream.received;
    stream.received = '';
    stream.left -= 1;
    stream.due += this.paceMs;
    this.tokens += 1;
    if (stream.left > 0) {
      stream.socket.write(first ? FIRST(first + now) : NEXT(now), 'latin1');
      return true;
    }
    stream.socket.write(LAST(now) + stream.ending, 'latin1');
    this.ended += 1;
    return false;
  }
}
