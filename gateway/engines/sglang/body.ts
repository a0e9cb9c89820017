import { isObject, isSet, parseObject, type JsonObject } from '../../json.ts';
import type { EngineTraits, GenerationRequest } from '../engine.ts';
import { isAdapter, type Lease } from '../lease.ts';

/** The salt keeps what was computed under one weight version from being used under another. */
const policyOf = (lease: Pick<Lease, 'weightVersion' | 'model'>): JsonObject => ({
  ...(lease.weightVersion === null ? {} : { cache_salt: lease.weightVersion }),
  ...(isAdapter(lease) ? { lora_path: lease.model } : {}),
});

/** Fields that are asked for in another way here. The model that a replica serves is not named: it may change its name. */
const OTHERWISE = [
  'model',
  'stream',
  'stream_options',
  'return_token_ids',
  'include_stop_str_in_output',
  'logprobs',
  'top_logprobs',
];
/**
 * Fields of SGLang that an agent must not set: they name another prompt, other requests (an id is also the beginning of ids that an abort
 * ends), adapters, code, cached prefixes, or where and when a request runs.
 */
const FORBIDDEN = [
  ...['input_ids', 'input_embeds', 'rid', 'session_id', 'session_params', 'lora_path', 'custom_logit_processor'],
  ...['cache_salt', 'extra_key', 'kv_hints', 'priority', 'routed_dp_rank', 'data_parallel_rank'],
  ...['disagg_prefill_dp_rank', 'routed_experts_start_len', 'sampling_logprobs_mode'],
  ...['bootstrap_host', 'bootstrap_port', 'bootstrap_room', 'bootstrap_pair_key'],
];
const LEFT_OUT = new Set([...OTHERWISE, ...FORBIDDEN]);

/** Returns the agent's request as SGLang's routes name its fields. */
export function sglangBody(
  { body }: Pick<GenerationRequest, 'body'>,
  lease: Pick<Lease, 'weightVersion' | 'model'>,
): JsonObject {
  const rest = Object.fromEntries(
    Object.entries(body).filter(([field]) => !LEFT_OUT.has(field) && !field.startsWith('return_')),
  );
  return {
    ...rest,
    ...(Array.isArray(body.messages) ? { messages: body.messages.map(asSglang) } : {}),
    ...(body.top_k === 0 ? { top_k: -1 } : {}),
    ...(body.include_stop_str_in_output === true ? { no_stop_trim: true } : {}),
    ...policyOf(lease),
  };
}

/** Names the reasoning as SGLang does, and puts what a model wrote in place of an object of arguments into one, which SGLang wants. */
function asSglang(message: unknown): unknown {
  if (!isObject(message)) return message;
  const { reasoning, tool_calls: calls, ...rest } = message;
  return {
    ...rest,
    ...(typeof reasoning === 'string' ? { reasoning_content: reasoning } : {}),
    ...(Array.isArray(calls) ? { tool_calls: calls.map(withObject) } : {}),
  };
}

function withObject(call: unknown): unknown {
  if (!isObject(call) || !isObject(call.function)) return call;
  const { arguments: given } = call.function;
  if (typeof given !== 'string' || parseObject(given)) return call;
  return { ...call, function: { ...call.function, arguments: JSON.stringify({ input: given }) } };
}

/** Returns the fields that ask for what only the record needs of each token. */
export const recordedFields = (
  { top_k: topK }: JsonObject,
  traits: EngineTraits | null,
  expertsFrom: number,
): JsonObject => ({
  ...(typeof topK === 'number' && topK > 1 && topK <= (traits?.maskedTopK ?? 0) ? { return_sampling_mask: true } : {}),
  ...(traits?.experts ? { return_routed_experts: true, routed_experts_start_len: expertsFrom } : {}),
});

/** The fields that decide how messages become ids. */
const RENDERED = [
  'messages',
  'tools',
  'tool_choice',
  'reasoning_effort',
  'reasoning',
  'thinking',
  'chat_template_kwargs',
  'continue_final_message',
];

/** Returns what `/tokenize` needs of a chat. */
export const renderedFields = (body: JsonObject): JsonObject =>
  Object.fromEntries(RENDERED.flatMap((field) => (body[field] === undefined ? [] : [[field, body[field]]])));

/** The names of sampling settings in `/generate`, by their names in a completion. Those that it does not know it refuses. */
const SETTINGS: Record<string, string> = {
  ...Object.fromEntries(
    [
      ...['stop', 'stop_token_ids', 'stop_regex', 'temperature', 'top_p', 'top_k', 'min_p', 'frequency_penalty'],
      ...[
        'presence_penalty',
        'repetition_penalty',
        'regex',
        'ebnf',
        'ignore_eos',
        'skip_special_tokens',
        'no_stop_trim',
      ],
      ...['logit_bias', 'custom_params', 'n'],
    ].map((name) => [name, name]),
  ),
  min_tokens: 'min_new_tokens',
  seed: 'sampling_seed',
};

/** Returns the settings for `/generate`. A limit of null is as many tokens as fit. */
export function samplingParams(body: JsonObject, maxNewTokens: number | null): JsonObject {
  const set = Object.entries(SETTINGS).flatMap(([name, own]) => (body[name] == null ? [] : [[own, body[name]]]));
  return { ...Object.fromEntries(set), max_new_tokens: maxNewTokens, ...formOf(body) };
}

function formOf({ response_format: format, json_schema, structural_tag }: JsonObject): JsonObject {
  if (isObject(format) && format.type === 'json_object') return { json_schema: '{"type": "object"}' };
  if (isObject(format) && format.type === 'json_schema' && isObject(format.json_schema))
    return { json_schema: JSON.stringify(format.json_schema.schema) };
  if (isObject(format) && format.type === 'structural_tag') return { structural_tag: JSON.stringify(format) };
  return { ...(isSet(json_schema) ? { json_schema } : {}), ...(isSet(structural_tag) ? { structural_tag } : {}) };
}

/** The settings that SGLang's chat route takes from the model's folder where a request has none. `/generate` does not. */
const FROM_FOLDER = ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty'];

/**
 * True when a chat's reply is the text as it is sampled: no parser and no grammar touches it, and nothing depends on what only the chat
 * route knows.
 */
export const isPlainChat = (body: JsonObject): boolean =>
  !isSet(body.tools) &&
  FROM_FOLDER.every((field) => body[field] != null) &&
  !isSet(body.regex) &&
  !isSet(body.ebnf) &&
  !(isObject(body.response_format) && body.response_format.type !== 'text');
