/** Lets `burst` events pass at once and then `perSecond` events. Events that come faster must wait. */
export class Pace {
  readonly #intervalMs: number;
  readonly #burst: number;
  #next = Number.NEGATIVE_INFINITY;

  constructor(perSecond: number, burst: number) {
    this.#intervalMs = 1000 / perSecond;
    this.#burst = burst;
  }

  /** Returns the number of milliseconds that an event at `now` must wait. */
  delay(now: number): number {
    this.#next = Math.max(this.#next, now - this.#burst * this.#intervalMs) + this.#intervalMs;
    return Math.max(0, this.#next - now);
  }
}
