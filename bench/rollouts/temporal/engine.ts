import { setTimeout as delay } from 'node:timers/promises';

/** What became of one trial on the engine. Seconds of its own clock, which stands still in a publication. */
export type Sampled = { version: number; start: number; seconds: number; completed: boolean };

/** Sampling as a scheduler sees it: so many slots, first come first served, each held for as long as a trial takes. */
export class SlotEngine {
  version = 0;
  /** Most slots ever wanted at once. */
  peakWanted = 0;
  readonly #slots: number;
  readonly #queue: (() => void)[] = [];
  #running = 0;
  #paused = 0;
  #pausedSince: number | null = null;

  constructor(slots: number) {
    this.#slots = slots;
  }

  /** Seconds that it has run. */
  now(): number {
    return (this.#pausedSince ?? performance.now()) / 1000 - this.#paused;
  }

  async publish(seconds: number, version: number): Promise<void> {
    this.#pausedSince = performance.now();
    await delay(seconds * 1000);
    this.#paused += (performance.now() - this.#pausedSince) / 1000;
    this.#pausedSince = null;
    this.version = version;
    this.#admit();
  }

  /** Waits for a slot, holds it for `seconds`, gives it back at once when `signal` aborts. Null: it never had one. */
  async sample(seconds: number, signal: AbortSignal): Promise<Sampled | null> {
    await this.#takeSlot(signal);
    if (signal.aborted) return null;
    const { version } = this;
    const start = this.now();
    try {
      for (let left = seconds; left > 0.001 && !signal.aborted; left = start + seconds - this.now()) {
        await delay(left * 1000, undefined, { signal }).catch(() => {});
      }
      return { version, start, seconds: this.now() - start, completed: !signal.aborted };
    } finally {
      this.#running -= 1;
      this.#admit();
    }
  }

  async #takeSlot(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const leave = () => {
      const at = this.#queue.indexOf(resolve);
      if (at >= 0) this.#queue.splice(at, 1);
      resolve();
    };
    signal.addEventListener('abort', leave, { once: true });
    this.#queue.push(resolve);
    this.peakWanted = Math.max(this.peakWanted, this.#queue.length + this.#running);
    this.#admit();
    await promise;
    signal.removeEventListener('abort', leave);
  }

  #admit(): void {
    while (this.#pausedSince === null && this.#running < this.#slots) {
      const next = this.#queue.shift();
      if (!next) return;
      this.#running += 1;
      next();
    }
  }
}
