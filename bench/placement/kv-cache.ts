/** Tokens of a block. vLLM's have 16; larger ones make the simulation fast and change the hit rate by less than 1%. */
export const BLOCK = 128;
export const blocksOf = (tokens: number): number => Math.ceil(tokens / BLOCK);

/** An engine's KV blocks. Blocks that no sequence uses stay cached until their room is needed; the one that is unused for longest goes first. */
export class KvCache {
  readonly total: number;
  readonly #references = new Map<number, number>();
  /** The cached blocks that nobody uses, in the order in which they were given back. */
  readonly #unused = new Set<number>();

  constructor(total: number) {
    this.total = total;
  }

  get used(): number {
    return this.#references.size;
  }

  has(key: number): boolean {
    return this.#references.has(key) || this.#unused.has(key);
  }

  /** True when these blocks can all be in use beside those that are. */
  fits(keys: readonly number[]): boolean {
    let fresh = 0;
    for (const key of keys) if (!this.#references.has(key)) fresh += 1;
    return this.used + fresh <= this.total;
  }

  take(keys: readonly number[]): void {
    for (const key of keys) {
      this.#unused.delete(key);
      this.#references.set(key, (this.#references.get(key) ?? 0) + 1);
    }
    for (const key of this.#unused) {
      if (this.used + this.#unused.size <= this.total) break;
      this.#unused.delete(key);
    }
  }

  /** Gives blocks back, the last one first, so that a sequence's beginning stays longest. */
  give(keys: readonly number[]): void {
    for (const key of keys.toReversed()) {
      const left = (this.#references.get(key) ?? 1) - 1;
      if (left > 0) this.#references.set(key, left);
      else {
        this.#references.delete(key);
        this.#unused.add(key);
      }
    }
  }
}
