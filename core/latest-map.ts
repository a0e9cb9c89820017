type Entry<K, V> = { readonly key: K; value: V; older: Entry<K, V> | null; newer: Entry<K, V> | null };

/**
 * A map in the order of the last use. The entries are linked, because a JavaScript map takes ever longer to find its first entry when the
 * first ones are deleted again and again.
 */
export class LatestMap<K, V> {
  readonly #entries = new Map<K, Entry<K, V>>();
  #oldest: Entry<K, V> | null = null;
  #newest: Entry<K, V> | null = null;

  /** Returns the value and notes that it was used. */
  get(key: K): V | undefined {
    const entry = this.#entries.get(key);
    if (!entry) return undefined;
    this.#use(entry);
    return entry.value;
  }

  set(key: K, value: V): void {
    const known = this.#entries.get(key);
    const entry = known ?? { key, value, older: null, newer: null };
    entry.value = value;
    if (!known) this.#entries.set(key, entry);
    this.#use(entry);
  }

  delete(key: K): void {
    const entry = this.#entries.get(key);
    if (!entry) return;
    this.#entries.delete(key);
    this.#unlink(entry);
  }

  /** Returns the values, the one that was not used for longest first. */
  *values(): Generator<V, void, void> {
    for (let entry = this.#oldest; entry; entry = entry.newer) yield entry.value;
  }

  #use(entry: Entry<K, V>): void {
    if (entry === this.#newest) return;
    this.#unlink(entry);
    entry.older = this.#newest;
    if (this.#newest) this.#newest.newer = entry;
    this.#newest = entry;
    this.#oldest ??= entry;
  }

  #unlink(entry: Entry<K, V>): void {
    const { older, newer } = entry;
    if (older) older.newer = newer;
    else if (this.#oldest === entry) this.#oldest = newer;
    if (newer) newer.older = older;
    else if (this.#newest === entry) this.#newest = older;
    entry.older = entry.newer = null;
  }
}
