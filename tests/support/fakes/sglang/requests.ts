import { isObject } from '../../../../gateway/json.ts';
import type { Cue } from '../toy-engine.ts';
import type { Sampling } from './sequence.ts';

/** A refusal of a request, as the route that it came by words it. */
export class Refusal extends Error {
  readonly status: number;

  constructor(message: string, status = 400) {
    super(message);
    this.status = status;
  }
}

/** A request for replies, as `/generate` reads it or the chat route makes it. */
export type GenerateRequest = {
  rid: string | null;
  ids: number[];
  n: number;
  stream: boolean;
  sampling: Sampling;
  returnLogprob: boolean;
  logprobStart: number;
  topLogprobs: number;
  temperature: number;
  textInLogprobs: boolean;
  returnsMask: boolean;
  /** The prompt's first token whose experts are asked for. Null: none are. */
  expertsFrom: number | null;
  lora: string | null;
  topK: number;
  returnsPromptIds: boolean;
  /** True when the chat route made it, whose streams are read from all of a reply so far. */
  isChat: boolean;
  cacheKey: string;
  cue: Cue | undefined;
};

/** The fields of `sampling_params`. Any other is refused. */
const FIELDS = [
  ...['max_new_tokens', 'stop', 'stop_token_ids', 'stop_regex', 'temperature', 'top_p', 'top_k', 'min_p'],
  ...['frequency_penalty', 'presence_penalty', 'repetition_penalty', 'min_new_tokens', 'n', 'json_schema', 'regex'],
  ...['ebnf', 'structural_tag', 'ignore_eos', 'skip_special_tokens', 'spaces_between_special_tokens', 'no_stop_trim'],
  ...['stream_interval', 'logit_bias', 'sampling_seed', 'custom_params', 'beam_width', 'watermark', 'choice'],
];

/** Returns the first violation of the schema of `/generate`, in the words of its route. */
export function contractError(body: Record<string, unknown>): string | null {
  const { sampling_params: params } = body;
  if (params === undefined || params === null) return null;
  if (!isObject(params)) return `invalid type: ${typeof params}, expected an object`;
  const unknown = Object.keys(params).find((key) => !FIELDS.includes(key));
  return unknown === undefined
    ? null
    : `unknown field \`${unknown}\`, expected one of ${FIELDS.map((each) => `\`${each}\``).join(', ')}`;
}

const numberIn = (value: unknown, otherwise: number): number => (typeof value === 'number' ? value : otherwise);
const stringsIn = (value: unknown): string[] => [value].flat().filter((each) => typeof each === 'string');
const idsIn = (value: unknown): number[] =>
  Array.isArray(value) ? value.filter((each) => typeof each === 'number') : [];

/** The number of new tokens where a request names none. */
const MAX_NEW_TOKENS = 128;
const TOP_K_ALL = 1 << 30;

type ReadSampling = Sampling & { n: number; topK: number; temperature: number; cue?: Cue };

export function samplingOf(params: Record<string, unknown>): ReadSampling {
  const temperature = numberIn(params.temperature, 1);
  const topP = numberIn(params.top_p, 1);
  const minP = numberIn(params.min_p, 0);
  const topK = numberIn(params.top_k, TOP_K_ALL);
  const maxNewTokens = params.max_new_tokens === null ? null : numberIn(params.max_new_tokens, MAX_NEW_TOKENS);
  if (temperature < 0) throw new Refusal(`temperature must be a non-negative finite number, got ${temperature}.`);
  if (topP <= 0 || topP > 1) throw new Refusal(`top_p must be in (0, 1], got ${topP}.`);
  if (minP < 0 || minP > 1) throw new Refusal(`min_p must be in [0, 1], got ${minP}.`);
  if (topK < 1 && topK !== -1) throw new Refusal(`top_k must be -1 (disable) or at least 1, got ${topK}.`);
  if (maxNewTokens !== null && maxNewTokens < 0)
    throw new Refusal(`max_new_tokens must be at least 0, got ${maxNewTokens}.`);
  const grammars = [params.json_schema, params.regex, params.ebnf, params.structural_tag].filter(Boolean);
  if (grammars.length > 1) throw new Refusal('Only one of json_schema, regex, ebnf, or structural_tag can be set.');
  const custom = isObject(params.custom_params) ? params.custom_params : {};
  return {
    maxNewTokens,
    stop: stringsIn(params.stop),
    stopTokenIds: idsIn(params.stop_token_ids),
    ignoreEos: params.ignore_eos === true,
    noStopTrim: params.no_stop_trim === true,
    skipSpecialTokens: params.skip_special_tokens !== false,
    streamInterval: typeof params.stream_interval === 'number' ? params.stream_interval : null,
    n: numberIn(params.n, 1),
    temperature,
    // No temperature means greedy sampling.
    topK: temperature < 1e-6 ? 1 : topK === -1 ? TOP_K_ALL : topK,
    ...(isCue(custom.cue) ? { cue: custom.cue } : {}),
  };
}

const isCue = (value: unknown): value is Cue =>
  isObject(value) && Array.isArray(value.lines) && typeof value.log === 'string';

/** Reads the body of `/generate`. `encode` reads its text, if it has no ids. */
export function generateRequest(body: Record<string, unknown>, encode: (text: string) => number[]): GenerateRequest {
  const { text, input_ids, rid } = body;
  if (typeof text !== 'string' && !Array.isArray(input_ids))
    throw new Refusal('Either text, input_ids or input_embeds should be provided.');
  const ids = Array.isArray(input_ids) ? idsIn(input_ids) : encode(String(text));
  if (ids.length === 0) throw new Refusal('input_ids cannot be empty.');
  const { n, topK, temperature, cue, ...sampling } = samplingOf(
    isObject(body.sampling_params) ? body.sampling_params : {},
  );
  return {
    rid: typeof rid === 'string' ? rid : null,
    ids,
    n,
    stream: body.stream === true,
    sampling,
    returnLogprob: body.return_logprob === true,
    logprobStart: numberIn(body.logprob_start_len, -1),
    topLogprobs: numberIn(body.top_logprobs_num, 0),
    temperature,
    textInLogprobs: body.return_text_in_logprobs === true,
    returnsMask: body.return_sampling_mask === true,
    expertsFrom: body.return_routed_experts === true ? numberIn(body.routed_experts_start_len, 0) : null,
    lora: typeof body.lora_path === 'string' && body.lora_path !== '' ? body.lora_path : null,
    topK,
    isChat: false,
    returnsPromptIds: body.return_prompt_token_ids === true,
    cacheKey: [body.extra_key, body.cache_salt].map((each) => (typeof each === 'string' ? each : '')).join('\n'),
    cue,
  };
}

/** True for the request by which the gateway learns of which distribution log-probabilities are. It takes no reply of the script. */
export const isModeProbe = ({ sampling: { maxNewTokens }, topLogprobs, cue }: GenerateRequest): boolean =>
  maxNewTokens === 1 && topLogprobs === 2 && cue === undefined;
