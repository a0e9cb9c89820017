/** How many calls each trial has under way in this process. */
export class InFlight {
  readonly #counts = new Map<string, number>();

  count(trialId: string): number {
    return this.#counts.get(trialId) ?? 0;
  }

  /** Counts one in. What it returns counts it out, once. */
  enter(trialId: string): () => void {
    this.#counts.set(trialId, this.count(trialId) + 1);
    let inside = true;
    return () => {
      if (!inside) return;
      inside = false;
      const left = this.count(trialId) - 1;
      if (left > 0) this.#counts.set(trialId, left);
      else this.#counts.delete(trialId);
    };
  }
}
