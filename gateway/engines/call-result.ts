import type { ExpertsForm } from '../../store/schema.ts';
import type { JsonObject } from '../json.ts';

/**
 * The sampled tokens of one reply. Null if the engine did not return them or their form cannot be trusted. `mask` has the ids that could be
 * sampled at each token.
 */
export type SampledTokens = { completion: number[] | null; logprobs: number[] | null; mask: number[][] | null };

/**
 * The experts that each layer of a mixture chose for each token, in base64 of an engine's own form, from the prompt's token `start` on. The
 * last token has none, because no layer has read it.
 */
export type SampledExperts = { base64: string; form: ExpertsForm; start: number };

/** Tokens that were sampled under the same weight version of the engine. */
export type WeightVersionSpan = { weightVersion: string; start: number; end: number };

/** One of a call's replies. */
export type ChoiceResult = SampledTokens & {
  /** Null when the engine does not say which weights sampled which tokens. */
  versions: WeightVersionSpan[] | null;
  /** Null or absent when the engine did not return them. */
  experts?: SampledExperts | null;
  finishReason: string | null;
};

/** The tokens of a choice whose engine does not report their ids. */
export const NOTHING_SAMPLED: Omit<ChoiceResult, 'finishReason'> = {
  completion: null,
  logprobs: null,
  mask: null,
  versions: null,
};

/** The facts known of a call when it ends. */
export type CallResult = {
  prompt: number[] | null;
  choices: ChoiceResult[];
  /** The number of sampled tokens as the engine counted them. */
  counted: number | null;
  /** The reply as the agent gets it. */
  reply: JsonObject | null;
};

export const EMPTY_RESULT: CallResult = { prompt: null, choices: [], counted: null, reply: null };

/** Returns the number of ids that were sampled in all choices. */
export const sampledTokens = ({ choices }: CallResult): number =>
  choices.reduce((sum, { completion }) => sum + (completion?.length ?? 0), 0);
