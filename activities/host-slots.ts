/** How many sandboxes this worker may hold at once. A slot is taken with the sandbox and given back with it. */
export class HostSlots {
  readonly #limit: number;
  readonly #held = new Set<string>();
  readonly #queue: (() => void)[] = [];

  constructor(limit: number) {
    this.#limit = limit;
  }

  async take(key: string, signal: AbortSignal): Promise<void> {
    while (!this.#held.has(key) && this.#held.size >= this.#limit) {
      signal.throwIfAborted();
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#queue.push(resolve);
      signal.addEventListener('abort', () => resolve(), { once: true });
      await promise;
    }
    this.#held.add(key);
  }

  release(key: string): void {
    this.#held.delete(key);
    // All of them look again: one that was cancelled must not swallow the wake-up of another.
    for (const wake of this.#queue.splice(0)) wake();
  }
}
