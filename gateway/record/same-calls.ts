export type SameCall = {
  /** Resolves when all earlier calls with the same key have ended. Rejects with the signal's reason. */
  earlier: (signal: AbortSignal) => Promise<unknown>;
  /** Ends this call. */
  release: () => void;
};

/** Orders equal calls by their arrival. */
export interface SameCalls {
  enter(key: string): SameCall;
}

/** Equal calls of this process. */
export class SameCallsHere implements SameCalls {
  readonly #ended = new Map<string, Promise<void>[]>();

  enter(key: string): SameCall {
    const before = this.#ended.get(key) ?? [];
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#ended.set(key, [...before, promise]);
    const release = () => {
      resolve();
      const others = (this.#ended.get(key) ?? []).filter((other) => other !== promise);
      if (others.length > 0) this.#ended.set(key, others);
      else this.#ended.delete(key);
    };
    return { earlier: () => Promise.all(before), release };
  }
}
