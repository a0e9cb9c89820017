type Event = { at: number; order: number; run: () => void };

/** Simulated time in seconds. Runs events in their order. */
export class Clock {
  now = 0;
  readonly #heap: Event[] = [];
  #order = 0;

  at(time: number, run: () => void): void {
    const heap = this.#heap;
    heap.push({ at: Math.max(time, this.now), order: this.#order++, run });
    for (let i = heap.length - 1; i > 0;) {
      const parent = (i - 1) >> 1;
      if (!this.#isBefore(i, parent)) break;
      this.#swap(i, parent);
      i = parent;
    }
  }

  after(seconds: number, run: () => void): void {
    this.at(this.now + seconds, run);
  }

  /** Runs events until none is left or `isDone` returns true. */
  run(isDone: () => boolean): void {
    for (let event = this.#pop(); event && !isDone(); event = this.#pop()) {
      this.now = event.at;
      event.run();
    }
  }

  #pop(): Event | undefined {
    const heap = this.#heap;
    const [first] = heap;
    const last = heap.pop();
    if (!first || !last || heap.length === 0) return first;
    heap[0] = last;
    for (let i = 0; ;) {
      let least = i;
      for (const child of [2 * i + 1, 2 * i + 2])
        if (child < heap.length && this.#isBefore(child, least)) least = child;
      if (least === i) return first;
      this.#swap(i, least);
      i = least;
    }
  }

  #isBefore(a: number, b: number): boolean {
    const [one, other] = [this.#heap[a], this.#heap[b]];
    if (!one || !other) return false;
    return one.at < other.at || (one.at === other.at && one.order < other.order);
  }

  #swap(a: number, b: number): void {
    const [one, other] = [this.#heap[a], this.#heap[b]];
    if (one && other) [this.#heap[a], this.#heap[b]] = [other, one];
  }
}
