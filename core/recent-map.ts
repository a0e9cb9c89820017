/**
 * A map of at most `most` entries, an even number, of which it always has the half that was used last. It has two generations: when the
 * younger one is full, the older one is forgotten. Unlike in `LatestMap`, reading an entry that is used often writes nothing.
 */
export class RecentMap<K, V> {
  readonly #half: number;
  #younger = new Map<K, V>();
  #older = new Map<K, V>();

  constructor(most: number) {
    this.#half = most / 2;
  }

  /** Returns the value and notes that it was used. */
  get(key: K): V | undefined {
    const value = this.#younger.get(key);
    if (value !== undefined) return value;
    const old = this.#older.get(key);
    if (old !== undefined) this.set(key, old);
    return old;
  }

  set(key: K, value: V): void {
    if (this.#younger.size >= this.#half && !this.#younger.has(key)) {
      this.#older = this.#younger;
      this.#younger = new Map();
    }
    this.#younger.set(key, value);
  }
}
