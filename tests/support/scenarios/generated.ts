import { startsWith } from '../../../core/token-ids.ts';

/** The prompt that an engine was given for one reply, and the reply. */
export type GeneratedReply = {
  prompt: number[];
  completion: number[];
  logprobs: number[];
  /** The version of each token, if the engine has a run's weights. */
  versions?: (number | null)[];
};

/** True when a record's turn, the `i`th of its trial, equals what the engine was given and gave. */
export type TurnMatcher = (turn: GeneratedReply, i: number) => boolean;

export const same = (a: readonly number[], b: readonly number[]): boolean => a.length === b.length && startsWith(a, b);

/** Compares with one engine's replies to one trial, in their order. */
export const inOrder =
  (generated: readonly GeneratedReply[]): TurnMatcher =>
  (turn, i) => {
    const {
      prompt,
      completion,
      logprobs,
      versions = [],
    } = generated[i] ?? { prompt: [], completion: [], logprobs: [] };
    const isVersioned =
      versions.every((version, at) => version === turn.versions?.[at]) && versions.length === turn.versions?.length;
    return (
      same(prompt, turn.prompt) &&
      same(completion, turn.completion) &&
      same(logprobs.map(Math.fround), turn.logprobs) &&
      isVersioned
    );
  };

/** Replies to many trials at once. Each belongs to one turn. */
export class Replies {
  readonly #left = new Map<string, number>();

  add(generated: GeneratedReply): void {
    const key = keyOf(generated);
    this.#left.set(key, (this.#left.get(key) ?? 0) + 1);
  }

  readonly take: TurnMatcher = (turn) => {
    const key = keyOf(turn);
    const left = this.#left.get(key) ?? 0;
    if (left > 1) this.#left.set(key, left - 1);
    else this.#left.delete(key);
    return left > 0;
  };

  /** The number of replies that matched no turn. */
  get left(): number {
    return [...this.#left.values()].reduce((sum, count) => sum + count, 0);
  }
}

const keyOf = ({ prompt, completion, logprobs }: GeneratedReply): string =>
  [prompt, completion, logprobs.map(Math.fround)].join('|');
