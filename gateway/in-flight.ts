/** How much this process has under way: calls by trial or by replica, or their bytes. */
export class InFlight {
  readonly #counts = new Map<string, number>();

  count(key: string): number {
    return this.#counts.get(key) ?? 0;
  }

  /** Counts so many in. What it returns counts them out, once. */
  enter(key: string, amount = 1): () => void {
    this.#counts.set(key, this.count(key) + amount);
    let inside = true;
    return () => {
      if (!inside) return;
      inside = false;
      const left = this.count(key) - amount;
      if (left > 0) this.#counts.set(key, left);
      else this.#counts.delete(key);
    };
  }
}
