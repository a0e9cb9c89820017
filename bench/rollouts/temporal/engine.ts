import { setTimeout as delay } from 'node:timers/promises';

/** One trial on the engine, in seconds of the engine's clock, which stops during a publication. */
export type SlotUse = { version: number; start: number; seconds: number; completed: boolean };

/** An engine as a scheduler sees it: slots that are given in order of requests, each held for a trial's duration. */
export class SlotEngine {
  version = 0;
  /** The largest number of slots that were wanted at once. */
  peakWanted = 0;
  readonly #slots: number;
  readonly #queue: (() => void)[] = [];
  #running = 0;
  #paused = 0;
  #pausedSince: number | null = null;

  constructor(slots: number) {
    this.#slots = slots;
  }

  /** Returns the seconds of its clock. */
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

  /** Waits for a slot and holds it for `seconds`, or until `signal` aborts. Returns null if it never had one. */
  async sample(seconds: number, signal: AbortSignal): Promise<SlotUse | null> {
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
