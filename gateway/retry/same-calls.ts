export type SameCall = {
  /** Resolves when all that came before with the same key have ended. Rejects with the signal's reason. */
  earlier: (signal: AbortSignal) => Promise<unknown>;
  /** Ends this one. */
  leave: () => void;
};

/** Calls that ask for the same, in the order in which they came. */
export interface SameCalls {
  enter(key: string): SameCall;
}

/** Those of this process. */
export class SameCallsHere implements SameCalls {
  readonly #ended = new Map<string, Promise<void>[]>();

  enter(key: string): SameCall {
    const before = this.#ended.get(key) ?? [];
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#ended.set(key, [...before, promise]);
    const leave = () => {
      resolve();
      const others = (this.#ended.get(key) ?? []).filter((other) => other !== promise);
      if (others.length > 0) this.#ended.set(key, others);
      else this.#ended.delete(key);
    };
    return { earlier: () => Promise.all(before), leave };
  }
}
