const END: IteratorResult<Uint8Array, undefined> = { done: true, value: undefined };

type Options = {
  /** The most bytes of the whole reply. */
  maxBytes: number;
  /** Is called after the reader took so many bytes. */
  onTaken: (bytes: number) => void;
  /** Is called when nobody wants the rest of a reply that has not ended. */
  onUnwanted: () => void;
};

/**
 * The body of a reply whose parts are pushed, written by hand because the streams of Node cost more than the rest of a call. Parts that
 * came before they are asked for are returned as one.
 */
export class ReplyBody implements AsyncIterableIterator<Uint8Array> {
  readonly #options: Options;
  #unread: Uint8Array[] = [];
  #size = 0;
  #left: number;
  #isOver = false;
  #error: unknown = null;
  #reader: PromiseWithResolvers<void> | null = null;

  constructor(options: Options) {
    this.#options = options;
    this.#left = options.maxBytes;
  }

  /** The number of bytes that were not read yet. */
  get unread(): number {
    return this.#size;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Returns false, and drops the part, when the reply is too long. */
  push(bytes: Uint8Array): boolean {
    if (this.#isOver) return true;
    this.#left -= bytes.byteLength;
    if (this.#left < 0) return false;
    this.#unread.push(bytes);
    this.#size += bytes.byteLength;
    this.#wake();
    return true;
  }

  /** Ends the reply. The reader first gets what is unread, then the error if there is one. */
  end(error: unknown = null): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#error = error;
    this.#wake();
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#size === 0 && !this.#isOver) {
      this.#reader = Promise.withResolvers();
      await this.#reader.promise;
    }
    if (this.#size > 0) return { done: false, value: this.#take() };
    if (this.#error !== null) throw this.#error;
    return END;
  }

  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (!this.#isOver) this.#options.onUnwanted();
    return END;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #take(): Uint8Array {
    const value = joined(this.#unread, this.#size);
    this.#unread = [];
    this.#size = 0;
    // More parts may come before this returns.
    this.#options.onTaken(value.byteLength);
    return value;
  }

  /** Wakes the reader in a microtask, which runs after everything that one read of the socket brought. */
  #wake(): void {
    this.#reader?.resolve();
    this.#reader = null;
  }
}

function joined(parts: readonly Uint8Array[], size: number): Uint8Array {
  const [first, ...more] = parts;
  if (first && more.length === 0) return first;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.byteLength;
  }
  return whole;
}
