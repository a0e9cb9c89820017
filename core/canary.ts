/** Tokens with the trainer's log-probabilities, by which an engine shows that it has the right weights. Both lists have the same length. */
export type Canary = { token_ids: number[]; logprobs: number[] };
