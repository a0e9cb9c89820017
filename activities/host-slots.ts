/**
 * How many sandboxes this host may hold at once. A permit is a place promised to an opening that may yet come: without one
 * the worker does not ask for a trial. What was opened has a place of its own until it is closed, so that for a moment an
 * opening has two: fewer are promised then, never more.
 */
export class HostSlots {
  readonly #limit: number;
  readonly #permits = new Set<object>();
  readonly #held = new Set<string>();
  readonly #queue: (() => void)[] = [];

  constructor(limit: number) {
    this.#limit = limit;
  }

  get free(): number {
    return Math.max(0, this.#limit - this.#permits.size - this.#held.size);
  }

  /** Waits for a place. Rejects with the signal's reason when nobody waits for it any more. */
  async permit(signal: AbortSignal): Promise<object> {
    signal.throwIfAborted();
    while (this.free === 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#queue.push(resolve);
      signal.addEventListener('abort', () => resolve(), { once: true });
      await promise;
      signal.throwIfAborted();
    }
    const permit = {};
    this.#permits.add(permit);
    // Who asked may have gone while the answer was on its way: then nobody gives it back.
    signal.addEventListener('abort', () => this.giveBack(permit), { once: true });
    return permit;
  }

  giveBack(permit: object): void {
    if (this.#permits.delete(permit)) this.#wake();
  }

  hold(key: string): void {
    this.#held.add(key);
  }

  release(key: string): void {
    if (this.#held.delete(key)) this.#wake();
  }

  /** All of them look again: one that was cancelled must not swallow the wake-up of another. */
  #wake(): void {
    for (const wake of this.#queue.splice(0)) wake();
  }
}
