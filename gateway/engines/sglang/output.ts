import { isObject, type JsonObject } from '../../json.ts';
import type { ChoiceResult } from '../call-result.ts';
import { badReply } from '../engine-failed.ts';
import { expertsIn, idsIn, maskIn, spansIn } from '../read-sampled.ts';
import { aborted } from './rejection.ts';

/** A log-probability and, where it was asked for, its token's text. */
export type Triple = { logprob: number; token: string };

/** The log-probabilities in `meta_info`, and the alternatives to each token. */
export type Logprobs = { sampled: Triple[]; top: Triple[][] };

const NONE: readonly unknown[] = [];
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : NONE);

const numberOf = (value: unknown): number => (typeof value === 'number' ? value : Number.NaN);

function tripleOf(value: unknown): Triple {
  const [logprob, , token] = listOf(value);
  return {
    logprob: numberOf(logprob),
    token: typeof token === 'string' ? token : '',
  };
}

export const logprobsIn = ({ output_token_logprobs, output_top_logprobs }: JsonObject, from = 0): Logprobs => ({
  sampled: listOf(output_token_logprobs).slice(from).map(tripleOf),
  top: listOf(output_top_logprobs)
    .slice(from)
    .map((each) => listOf(each).map(tripleOf)),
});

/**
 * Returns the log-probabilities of the sampled tokens, over the ids that could be sampled where the engine returns these ids. Otherwise they
 * are `logprobs`, which are over all ids.
 */
export const sampledLogprobs = (
  { output_token_sampling_logprobs: masked }: JsonObject,
  { sampled }: Logprobs,
  from = 0,
): number[] => (Array.isArray(masked) ? masked.slice(from).map(numberOf) : sampled.map(({ logprob }) => logprob));

export const samplingMaskIn = ({ output_token_sampling_mask: mask }: JsonObject, from = 0): number[][] | null =>
  Array.isArray(mask) ? maskIn(mask.slice(from)) : null;

/** The end of a reply. `stop` is the stop string that ended it. Null while it goes on. */
export type Ending = { reason: string; stop: string | null };

/** Throws when the engine aborted the reply. */
export function endingIn({ finish_reason: finished }: JsonObject): Ending | null {
  if (finished === null || finished === undefined) return null;
  if (!isObject(finished) || typeof finished.type !== 'string') throw badReply('has an unknown finish reason');
  if (finished.type === 'abort') throw aborted(finished);
  return { reason: finished.type, stop: typeof finished.matched === 'string' ? finished.matched : null };
}

export const metaOf = ({ meta_info: meta }: JsonObject): JsonObject => {
  if (!isObject(meta)) throw badReply('has no meta_info');
  return meta;
};

/** Reads what was sampled in a whole reply. */
export function resultOf(
  meta: JsonObject,
  ids: unknown,
  finishReason: string | null,
  expertsFrom: number,
): ChoiceResult {
  return {
    completion: idsIn(ids),
    logprobs: Array.isArray(meta.output_token_logprobs) ? sampledLogprobs(meta, logprobsIn(meta)) : null,
    mask: samplingMaskIn(meta),
    versions: spansIn(meta.weight_versions),
    experts: expertsIn(meta.routed_experts, 'int32', expertsFrom),
    finishReason,
  };
}

export const countIn = ({ completion_tokens: count }: JsonObject): number => (typeof count === 'number' ? count : 0);
