type Holder = { ended: Promise<void> };

/** The calls under way in this process, by trial and by what they ask. */
export class InFlight {
  readonly #counts = new Map<string, number>();
  readonly #holders = new Map<string, Holder[]>();

  count(trialId: string): number {
    return this.#counts.get(trialId) ?? 0;
  }

  /** Counts a call in. `earlier` resolves when all that were under way with the same key have ended; `leave` counts it out, once. */
  enter(trialId: string, key: string): { earlier: Promise<unknown>; leave: () => void } {
    this.#counts.set(trialId, this.count(trialId) + 1);
    const holders = this.#holders.get(key) ?? [];
    const earlier = Promise.all(holders.map((holder) => holder.ended));
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    const holder = { ended };
    this.#holders.set(key, [...holders, holder]);
    let inside = true;
    const leave = () => {
      if (!inside) return;
      inside = false;
      resolve();
      const others = (this.#holders.get(key) ?? []).filter((other) => other !== holder);
      if (others.length > 0) this.#holders.set(key, others);
      else this.#holders.delete(key);
      const left = this.count(trialId) - 1;
      if (left > 0) this.#counts.set(trialId, left);
      else this.#counts.delete(trialId);
    };
    return { earlier, leave };
  }
}
