/** Counts the calls that this process has under way, by trial or by replica. */
export class InFlight {
  readonly #counts = new Map<string, number>();

  count(key: string): number {
    return this.#counts.get(key) ?? 0;
  }

  /** Counts one call in. Returns a function that counts it out, once. */
  enter(key: string): () => void {
    this.#counts.set(key, this.count(key) + 1);
    let inside = true;
    return () => {
      if (!inside) return;
      inside = false;
      const left = this.count(key) - 1;
      if (left > 0) this.#counts.set(key, left);
      else this.#counts.delete(key);
    };
  }
}
