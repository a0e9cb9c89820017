import { Failure } from '../failure.ts';

/** The most readers at a time, which have a connection each, and the most that wait for them. */
export const READERS = { reading: 2, waiting: 6 };

/** Lets a few readers of the record at a time pass, and a few more wait. Others are refused at once, so that their questions never pile up. */
export class ReadGate {
  readonly #most: { reading: number; waiting: number };
  #reading = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(most: { reading: number; waiting: number }) {
    this.#most = most;
  }

  /** @throws Failure `too_many_readers` */
  async pass<T>(read: () => Promise<T>): Promise<T> {
    if (this.#reading < this.#most.reading) this.#reading++;
    else if (this.#waiting.length < this.#most.waiting)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else
      throw new Failure(
        503,
        'too_many_readers',
        'others are reading the record at this moment, and it reads for a few at a time: try again in some seconds, or close pages that nobody looks at',
        { headers: { 'retry-after': '5' } },
      );
    try {
      return await read();
    } finally {
      // The place goes to the one that waits longest.
      const next = this.#waiting.shift();
      if (next) next();
      else this.#reading--;
    }
  }
}
