/** A queue of items with keys. Each key gets a turn before any gets a second one, so a key with many items does not hold others up. */
export class FairQueue<T> {
  /** The keys in the order of their turns, each with its items in their order. */
  readonly #items = new Map<string, Set<T>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Returns a function that removes the item if it still waits. */
  add(key: string, item: T): () => void {
    const items = this.#items.get(key) ?? new Set();
    items.add(item);
    this.#items.set(key, items);
    this.#size += 1;
    return () => this.#remove(key, item);
  }

  /** Returns the item whose turn it is. */
  first(): T | null {
    for (const items of this.#items.values()) for (const item of items) return item;
    return null;
  }

  /** Removes the item whose turn it is. The key's other items wait for its next turn. */
  shift(): void {
    for (const [key, items] of this.#items) {
      for (const item of items) {
        this.#remove(key, item);
        if (items.size > 0) {
          this.#items.delete(key);
          this.#items.set(key, items);
        }
        return;
      }
    }
  }

  #remove(key: string, item: T): void {
    const items = this.#items.get(key);
    if (!items?.delete(item)) return;
    this.#size -= 1;
    if (items.size === 0) this.#items.delete(key);
  }
}
