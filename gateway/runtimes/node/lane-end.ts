/** A request that the other thread has handed over. */
export type HandedRequest = {
  /** `sent` says whether this thread passed all of the reply to the other one. Resolves to whether the agent received it. */
  isDelivered: (sent: Promise<boolean>) => Promise<boolean>;
};

/**
 * The heavy thread's end of the lane. It recognizes requests of the other thread by a header, and learns from that thread how their
 * delivery ended.
 */
export class LaneEnd {
  readonly #token: string;
  readonly #waiting = new Map<string, (isWhole: boolean) => void>();

  constructor(token: string) {
    this.#token = token;
  }

  /** Returns null if the other thread did not write the header. */
  read(header: string | string[] | undefined): HandedRequest | null {
    const [token, id] = typeof header === 'string' ? header.split(' ') : [];
    if (token !== this.#token || id === undefined) return null;
    return {
      isDelivered: async (sent) => {
        // The other thread may report before this one sees that all is sent.
        const { promise, resolve } = Promise.withResolvers<boolean>();
        this.#waiting.set(id, resolve);
        try {
          return (await sent) && (await promise);
        } finally {
          this.#waiting.delete(id);
        }
      },
    };
  }

  tell(id: string, isWhole: boolean): void {
    this.#waiting.get(id)?.(isWhole);
  }
}
