import { CALLS_NOT_SHOWN } from '../../../store/calls/calls-not-shown.ts';
import type { SampledTokens } from '../../engines/call-result.ts';

export type Untrainable =
  | 'no_token_ids'
  | 'length_mismatch'
  | 'bad_logprobs'
  | 'sampling_not_reproducible'
  | 'policy_changed'
  | 'media_shown'
  | typeof CALLS_NOT_SHOWN;

/** Returns why these tokens cannot be trained on, judged by themselves. */
export function defectOf(prompt: number[] | null, { completion, logprobs }: SampledTokens): Untrainable | null {
  if (prompt === null || completion === null) return 'no_token_ids';
  if (logprobs?.length !== completion.length) return 'length_mismatch';
  return logprobs.every(isLogprob) ? null : 'bad_logprobs';
}

/** True when every sampled token has a mask that contains it. */
export function isMasked({ completion, mask }: SampledTokens): boolean {
  return (
    completion !== null && mask?.length === completion.length && completion.every((id, i) => mask[i]?.includes(id))
  );
}

/** Rounding may put a log-probability above 0 by at most this. The trainer has the same bound (`batch.py`). */
const ROUNDING = 1e-3;
const isLogprob = (value: number): boolean => Number.isFinite(Math.fround(value)) && value <= ROUNDING;
