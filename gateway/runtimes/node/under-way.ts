/** What a gateway does for people at this moment and that goes on when they leave. */
export class UnderWay {
  readonly #replies = new Set<Promise<unknown>>();

  /** Returns the function, each call of which counts until it has ended. */
  follow<Asked extends unknown[], T>(ask: (...asked: Asked) => Promise<T>): (...asked: Asked) => Promise<T> {
    return (...asked) => {
      const reply = ask(...asked);
      this.#replies.add(reply);
      const end = () => void this.#replies.delete(reply);
      reply.then(end, end);
      return reply;
    };
  }

  /** Waits until nothing is under way. */
  async settled(): Promise<void> {
    while (this.#replies.size > 0) await Promise.allSettled(this.#replies);
  }
}
