/** Calls of this process that ask for the same, in the order in which they came. */
export class SameCalls {
  readonly #ended = new Map<string, Promise<void>[]>();

  /** `earlier` resolves when all that came before with the same key have ended; `leave` ends this one. */
  enter(key: string): { earlier: Promise<unknown>; leave: () => void } {
    const before = this.#ended.get(key) ?? [];
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#ended.set(key, [...before, promise]);
    const leave = () => {
      resolve();
      const others = (this.#ended.get(key) ?? []).filter((other) => other !== promise);
      if (others.length > 0) this.#ended.set(key, others);
      else this.#ended.delete(key);
    };
    return { earlier: Promise.all(before), leave };
  }
}
