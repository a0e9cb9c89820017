/** A text's characters or a prompt's ids. */
export type Sequence = { length: number; at: (i: number) => number };

export const ofText = (text: string): Sequence => ({ length: text.length, at: (i) => text.charCodeAt(i) });
export const ofIds = (ids: ArrayLike<number>): Sequence => ({ length: ids.length, at: (i) => ids[i] ?? 0 });

/**
 * Finds the entries that a sequence begins with. The time depends on the sequence's length, not on the number of entries. The index holds
 * only hashes, so the caller compares what was found.
 */
export class PrefixIndex<T> {
  readonly #byLength = new Map<number, Map<string, T[]>>();

  /** `hash` is that of the entry's whole sequence. */
  add({ length, key }: RollingHash, value: T): void {
    const ofLength = this.#byLength.get(length) ?? new Map<string, T[]>();
    this.#byLength.set(length, ofLength);
    const same = ofLength.get(key);
    if (same) same.push(value);
    else ofLength.set(key, [value]);
  }

  /** Returns the entries, the longest first, grouped by equal length and hash. */
  find(sequence: Sequence): T[][] {
    if (this.#byLength.size === 0) return [];
    const found: T[][] = [];
    const hash = new RollingHash();
    for (let length = 0; length <= sequence.length; length++) {
      if (length > 0) hash.push(sequence.at(length - 1));
      const values = this.#byLength.get(length)?.get(hash.key);
      if (values) found.unshift(values);
    }
    return found;
  }
}

/** Two 32-bit hashes over everything pushed so far. A copy can be continued separately. */
export class RollingHash {
  length = 0;
  #a = 0x811c9dc5;
  #b = 0x1b873593;

  push(value: number): void {
    this.length += 1;
    this.#a = Math.imul(this.#a ^ value, 0x01000193);
    this.#b = Math.imul(this.#b, 0x85ebca6b) + value + 1;
  }

  /** Returns a copy that continues with the first `count` elements of the sequence. */
  with(sequence: Sequence, count = sequence.length): RollingHash {
    const next = new RollingHash();
    [next.length, next.#a, next.#b] = [this.length, this.#a, this.#b];
    for (let i = 0; i < count; i++) next.push(sequence.at(i));
    return next;
  }

  get key(): string {
    return `${this.#a >>> 0}.${this.#b >>> 0}`;
  }
}
