import { generator } from '../../../tests/support/scenarios/converse.ts';

/** The logarithm's standard deviation for which the 99th percentile is 20 × the median. */
export const SIGMA = Math.log(20) / 2.3263478740408408;

/** The number of durations drawn for a group. Not all of them need to start. */
export const WIDTH = 16;

/** Draws durations in medians. They depend only on (seed, group, trial), not on the order of requests. */
export class Durations {
  readonly #normal: () => number;
  readonly #width: number;
  readonly #shared: number;
  readonly #groups: number[][] = [];

  /** `shared` is the part of the logarithm's variance that a group's trials have in common, because tasks differ in length. */
  constructor(seed: number, width: number, shared = 0) {
    this.#normal = normals(generator(seed));
    this.#width = width;
    this.#shared = shared;
  }

  of(group: number): readonly number[] {
    while (this.#groups.length <= group) {
      const common = Math.sqrt(this.#shared) * this.#normal();
      const own = Math.sqrt(1 - this.#shared);
      this.#groups.push(Array.from({ length: this.#width }, () => Math.exp(SIGMA * (common + own * this.#normal()))));
    }
    return this.#groups[group] ?? [];
  }
}

/** Returns the same durations in groups of one trial. */
export const oneByOne = (durations: Pick<Durations, 'of'>, groupSize: number): Pick<Durations, 'of'> => ({
  of: (trial) => durations.of(Math.floor(trial / groupSize)).slice(trial % groupSize, (trial % groupSize) + 1),
});

/** Returns a generator of normal numbers by the Box–Muller method. */
function normals(random: () => number): () => number {
  return () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}
