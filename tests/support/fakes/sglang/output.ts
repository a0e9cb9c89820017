import { decode } from '../toy-tokenizer.ts';
import type { Span } from '../toy-engine.ts';
import type { GenerateRequest } from './requests.ts';
import type { FinishReason, Sequence } from './sequence.ts';

export type MetaInfo = Record<string, unknown> & {
  id: string;
  finish_reason: FinishReason | null;
  completion_tokens: number;
};
/** One object of `/generate`: of a whole reply, or of a stream's event. */
export type Output = {
  text: string;
  output_ids: number[];
  meta_info: MetaInfo;
  prompt_token_ids?: number[];
  index?: number;
};

export type Reported = {
  logprob: (id: number) => number;
  /** True when log-probabilities are of the distribution before the temperature. */
  isOriginal: () => boolean;
  mask: (id: number) => number[];
  /** The log-probability of a token among those of its mask. */
  maskedLogprob: (id: number) => number;
  /** The experts that a token's layers chose; null when the server does not capture them. */
  experts: (id: number) => number[] | null;
  /** Returns the weights that sampled a reply, as this engine reports them. */
  spans: (sequence: Sequence) => Span[];
};
type Now = Reported & {
  weightVersion: string;
  /** The tokens and characters that a stream of increments has sent. Null: each event has all of the reply. */
  told: { tokens: number; text: number } | null;
};

export function outputOf(sequence: Sequence, request: GenerateRequest, now: Now): Output {
  const { finished, output: ids, rid, text, endedInQueue: inQueue } = sequence;
  const { told } = now;
  // An abort in the queue of a stream of increments has the last id again, and all log-probabilities.
  const from = told && !inQueue ? told.tokens : 0;
  const spans = finished ? now.spans(sequence) : null;
  const meta: MetaInfo = {
    id: rid,
    finish_reason: finished,
    weight_version: spans?.at(-1)?.version ?? now.weightVersion,
    ...(inQueue ? {} : { prompt_tokens: sequence.prompt.length, num_retractions: sequence.retractions }),
    ...(request.returnLogprob ? logprobsOf(sequence, request, now, from) : {}),
    ...(request.returnsMask && !inQueue
      ? {
          output_token_sampling_mask: ids.slice(from).map(now.mask),
          output_token_sampling_logprobs: ids.slice(from).map(now.maskedLogprob),
          output_token_sampling_mask_length: ids.length,
        }
      : {}),
    ...(finished && !inQueue ? expertsOf(sequence, request, now) : {}),
    ...(inQueue ? {} : { reasoning_tokens: 0, cached_tokens: sequence.cachedTokens }),
    completion_tokens: ids.length,
    ...(spans ? { weight_versions: spans } : {}),
    ...(finished ? { e2e_latency: 0.01 } : {}),
  };
  return {
    text: told && !inQueue ? text.slice(told.text) : text,
    output_ids: told ? ids.slice(inQueue ? -1 : from) : [...ids],
    meta_info: meta,
    ...(request.returnsPromptIds ? { prompt_token_ids: [...request.ids] } : {}),
  };
}

/** Returns base64 of 32-bit integers, without the last token. */
function expertsOf({ prompt, output }: Sequence, { expertsFrom }: GenerateRequest, now: Now) {
  if (expertsFrom === null) return {};
  const chosen = [...prompt, ...output].slice(expertsFrom, -1).map(now.experts);
  if (chosen.includes(null)) return {};
  const bytes = new Int32Array(chosen.flatMap((ids) => ids ?? []));
  return { routed_experts: Buffer.from(bytes.buffer).toString('base64') };
}

function logprobsOf({ prompt, output }: Sequence, request: GenerateRequest, now: Now, from: number) {
  const { logprobStart, topLogprobs, temperature, textInLogprobs } = request;
  const start = logprobStart < 0 ? prompt.length : logprobStart;
  const entry = (logprob: number, id: number) => [logprob, id, textInLogprobs ? decode([id]) : null];
  // The next likely ids, so much less likely.
  const step = now.isOriginal() ? 1 : 1 / temperature;
  const top = output.map((id) =>
    Array.from({ length: topLogprobs }, (_, i) => entry(now.logprob(id) - i * step, id + i)),
  );
  return {
    input_token_logprobs: prompt.slice(start).map((id, i) => [start + i === 0 ? null : now.logprob(id), id, null]),
    output_token_logprobs: output.slice(from).map((id) => entry(now.logprob(id), id)),
    output_token_logprobs_length: output.length,
    ...(topLogprobs > 0 ? { output_top_logprobs: top.slice(from) } : {}),
  };
}
