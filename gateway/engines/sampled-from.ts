import { isSet, type JsonObject } from '../json.ts';
import type { LogprobsMode, SampledFrom } from './engine.ts';

/** An engine's own settings, besides those of OpenAI's protocol, `top_k` and `min_p`. */
type Settings = {
  /** The settings that exclude ids and keep the ratios between the others, except those that force the form of the reply. */
  exclusions: readonly string[];
  /** The settings that change the ratios between the ids. */
  changes: readonly string[];
};

/** Returns the test over which ids the probabilities of a call are a softmax, for an engine with these settings. */
export const sampledFromBy =
  ({ exclusions, changes }: Settings) =>
  (body: JsonObject, mode: LogprobsMode | null, isConstrained: boolean): SampledFrom => {
    const is = (key: string, ...fine: number[]) =>
      body[key] === undefined || body[key] === null || fine.includes(Number(body[key]));
    const isSoftmax =
      is('presence_penalty', 0) &&
      is('frequency_penalty', 0) &&
      is('repetition_penalty', 1) &&
      body.temperature !== 0 &&
      // Log-probabilities from before the temperature equal those of the sampled distribution only at temperature 1.
      (mode === 'processed_logprobs' || is('temperature', 1)) &&
      !changes.some((key) => isSet(body[key]));
    if (!isSoftmax) return 'unknown';
    const isWhole =
      is('top_p', 1) &&
      is('top_k', -1, 0) &&
      is('min_p', 0) &&
      !exclusions.some((key) => isSet(body[key])) &&
      !isConstrained;
    if (isWhole) return 'all';
    // A single possible id has no gradient: greedy decoding trains nothing and would only dilute means over tokens.
    return mode === 'processed_logprobs' && body.top_k !== 1 ? 'mask' : 'unknown';
  };

/** The bound of a sampling mask if neither the run nor the agent sets one. Engines return no masks without `top_k`. */
const MASK_TOP_K = 100;

/** Returns the request's fields with a bound for the mask. */
export const boundedForMask = (sampled: JsonObject): JsonObject =>
  typeof sampled.top_k === 'number' && sampled.top_k > 0 ? sampled : { ...sampled, top_k: MASK_TOP_K };
