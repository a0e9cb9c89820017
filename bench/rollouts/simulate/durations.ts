import { generator } from '../../../gateway/testing/converse.ts';

/** ln(p99 / median) over the standard normal's 99th percentile: the 99th percentile is 20 × the median. */
export const SIGMA = Math.log(20) / 2.3263478740408408;

/** Durations that are drawn for a group, whether or not all of them are started. */
export const WIDTH = 16;

/** Durations in medians, the same for the same (seed, group, member) whatever is asked for first. */
export class Durations {
  readonly #normal: () => number;
  readonly #width: number;
  readonly #shared: number;
  readonly #groups: number[][] = [];

  /** `shared`: the part of the logarithm's variance that a group's trials have in common, as tasks differ in length. */
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

/** The same trials in groups of one. */
export const oneByOne = (durations: Pick<Durations, 'of'>, groupSize: number): Pick<Durations, 'of'> => ({
  of: (trial) => durations.of(Math.floor(trial / groupSize)).slice(trial % groupSize, (trial % groupSize) + 1),
});

/** Box and Muller's. */
function normals(random: () => number): () => number {
  return () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}
