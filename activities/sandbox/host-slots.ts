/**
 * The slots for sandboxes on this host. A permit is a slot granted to an opening that may still come: without a permit the worker does
 * not ask for a trial. An open sandbox has a slot of its own until it is closed, so that an opening has two slots for a moment. Fewer
 * permits are granted then, never more.
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
    return Math.max(0, this.#limit - this.taken);
  }

  get taken(): number {
    return this.#permits.size + this.#held.size;
  }

  /** Waits for a slot. Rejects with the signal's reason when the signal aborts. */
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
    // The request may have been aborted while the permit was granted; nobody else would release it.
    signal.addEventListener('abort', () => this.releasePermit(permit), { once: true });
    return permit;
  }

  releasePermit(permit: object): void {
    if (this.#permits.delete(permit)) this.#wake();
  }

  hold(key: string): void {
    this.#held.add(key);
  }

  release(key: string): void {
    if (this.#held.delete(key)) this.#wake();
  }

  /** Wakes all waiting requests, because a cancelled one must not use up another one's wake-up. */
  #wake(): void {
    for (const wake of this.#queue.splice(0)) wake();
  }
}
