import { randomUUID } from 'node:crypto';
import { isObject } from '../../../../gateway/json.ts';
import { bytesOf, encode, template, type ToyMessage } from '../toy-tokenizer.ts';
import type { MetaInfo, Output } from './output.ts';
import { parseReasoning, parseToolCalls } from './parsers.ts';
import { generateRequest, Refusal, type GenerateRequest } from './requests.ts';

type Body = Record<string, unknown>;
export type Parsers = { toolCalls: boolean; reasoning: boolean };

const ROLES = ['system', 'assistant', 'tool', 'function', 'developer', 'latest_reminder', 'root', 'user'];
const MEDIA = ['image_url', 'video_url', 'audio_url', 'input_audio'];
const PARTS = ['text', 'thinking', 'reasoning', 'tool_reference', ...MEDIA];

/** Returns why the chat route refuses messages, or null. */
function messagesError(messages: unknown): string | null {
  if (!Array.isArray(messages)) return 'messages: Field required';
  if (messages.length === 0) return 'Messages cannot be empty.';
  for (const message of messages) {
    const role = isObject(message) && typeof message.role === 'string' ? message.role.toLowerCase() : '';
    if (!isObject(message) || !ROLES.includes(role)) return `role: unknown role ${role}`;
    const { content, tool_calls } = message;
    if (role === 'user' && typeof content !== 'string' && !Array.isArray(content)) return 'content: Field required';
    const types = Array.isArray(content) ? content.map((part) => (isObject(part) ? String(part.type) : '')) : [];
    if (types.some((type) => !PARTS.includes(type))) return `content: unknown part among ${types.join()}`;
    const media = types.find((type) => MEDIA.includes(type));
    if (media) return `Model only supports text input; received unsupported content type '${media}'.`;
    for (const call of Array.isArray(tool_calls) ? tool_calls : [])
      if (!isObject(call) || (call.type ?? 'function') !== 'function') return 'tool_calls: unknown type';
  }
  return null;
}

/** Renders messages to ids as `/tokenize` and the chat route do. */
export function promptOf(body: Body): number[] {
  const error = messagesError(body.messages);
  if (error) throw new Refusal(error);
  const messages = body.messages as ToyMessage[];
  for (const { tool_calls = [] } of messages) {
    for (const call of tool_calls) {
      let given: unknown;
      try {
        given = JSON.parse(call.function.arguments);
      } catch {
        throw new Refusal('Assistant tool call function.arguments must be valid JSON.');
      }
      if (!isObject(given)) throw new Refusal('Assistant tool call function.arguments must be a JSON object.');
    }
  }
  return encode(
    template({ messages, tools: toolsOf(body), add_generation_prompt: body.add_generation_prompt !== false }),
  );
}

const isNone = ({ tool_choice: choice }: Body): boolean => choice === 'none';
const toolsOf = (body: Body): unknown => (isNone(body) ? undefined : (body.tools ?? undefined));

const UNSTREAMED = ['return_prompt_token_ids', 'return_token_ids', 'return_meta_info'];

/** Makes the request for replies that a chat request becomes. */
export function chatRequest(body: Body): GenerateRequest {
  const error = messagesError(body.messages);
  if (error) throw new Refusal(error);
  if (body.tool_choice === 'required' && !body.tools)
    throw new Refusal('Tools cannot be empty if tool choice is set to required.');
  if (body.return_sampling_mask === true && body.return_meta_info !== true)
    throw new Refusal('return_sampling_mask requires return_meta_info=true.');
  for (const field of body.stream === true ? UNSTREAMED : [])
    if (body[field] === true) throw new Refusal(`${field} is not supported with streaming. Please set stream=false.`);
  const { custom_params, max_completion_tokens, max_tokens, ...rest } = body;
  const request = generateRequest(
    {
      ...rest,
      input_ids: Array.isArray(body.input_ids) ? body.input_ids : promptOf(body),
      sampling_params: {
        ...Object.fromEntries(SAMPLING.flatMap((key) => (body[key] == null ? [] : [[key, body[key]]]))),
        // A limit of 0 counts as none.
        max_new_tokens: max_completion_tokens || max_tokens || null,
        custom_params,
        skip_special_tokens: toolsOf(body) ? false : body.skip_special_tokens,
      },
      return_logprob: body.logprobs === true,
      top_logprobs_num: body.top_logprobs ?? 0,
      return_text_in_logprobs: true,
      return_prompt_token_ids: body.return_prompt_token_ids === true || body.return_token_ids === true,
    },
    encode,
  );
  return { ...request, isChat: true };
}

const SAMPLING = [
  'temperature',
  'top_p',
  'top_k',
  'min_p',
  'stop',
  'stop_token_ids',
  'n',
  'no_stop_trim',
  'ignore_eos',
];

/** Makes the chat completion of replies. */
export function chatReply(body: Body, outputs: readonly Output[], parsers: Parsers): unknown {
  const choices = outputs.map((output, index) => {
    const { message, finish, matched } = messageOf(body, output, parsers);
    return {
      index,
      message,
      logprobs: body.logprobs === true ? { content: logprobsOf(output.meta_info) } : null,
      finish_reason: finish,
      matched_stop: matched,
      ...(body.return_prompt_token_ids === true || body.return_token_ids === true
        ? { prompt_token_ids: output.prompt_token_ids }
        : {}),
      ...(body.return_token_ids === true ? { response_token_ids: output.output_ids } : {}),
      ...(body.return_meta_info === true ? { meta_info: output.meta_info } : {}),
    };
  });
  const [first] = outputs;
  if (!first) throw new Error('a request has at least one reply');
  const { id, weight_version, weight_versions } = first.meta_info;
  return {
    id,
    object: 'chat.completion',
    created: seconds(),
    model: modelOf(body),
    choices,
    usage: usageOf(outputs),
    metadata: { weight_version, ...(weight_versions ? { weight_versions } : {}) },
  };
}

function messageOf(body: Body, { text, meta_info }: Output, parsers: Parsers) {
  const { finish_reason: finished } = meta_info;
  const thought =
    parsers.reasoning && body.separate_reasoning !== false ? parseReasoning(text) : { reasoning: '', text };
  const tools = toolsOf(body);
  const found = parsers.toolCalls && tools ? parseToolCalls(thought.text, tools) : { text: thought.text, calls: [] };
  const calls = found.calls.map(({ name, parameters }, index) => ({
    id: `call_${randomUUID().replaceAll('-', '').slice(0, 24)}`,
    index,
    type: 'function',
    function: { name, arguments: parameters },
  }));
  const callsTools = calls.length > 0 && finished?.type === 'stop';
  return {
    message: {
      role: 'assistant',
      content: found.text,
      reasoning_content: thought.reasoning || null,
      ...(calls.length > 0 ? { tool_calls: calls } : {}),
    },
    finish: callsTools ? 'tool_calls' : (finished?.type ?? null),
    matched: callsTools || finished?.type !== 'stop' ? null : finished.matched,
  };
}

type Triple = [number, number, string | null];

function logprobsOf({ output_token_logprobs, output_top_logprobs }: MetaInfo) {
  const top = Array.isArray(output_top_logprobs) ? (output_top_logprobs as Triple[][]) : [];
  const asEntry = ([logprob, id, token]: Triple) => ({ token: token ?? '', bytes: bytesOf(id), logprob });
  return (output_token_logprobs as Triple[]).map((triple, i) => ({
    ...asEntry(triple),
    top_logprobs: (top[i] ?? []).map(asEntry),
  }));
}

export function usageOf(outputs: readonly Output[]) {
  const completion_tokens = outputs.reduce((sum, { meta_info }) => sum + meta_info.completion_tokens, 0);
  const prompt_tokens = Number(outputs[0]?.meta_info.prompt_tokens ?? 0);
  return {
    prompt_tokens,
    total_tokens: prompt_tokens + completion_tokens,
    completion_tokens,
    prompt_tokens_details: null,
    reasoning_tokens: 0,
    completion_tokens_details: null,
  };
}

/**
 * Makes the events of a streamed chat. They have no ids and no versions, and a chunk's log-probabilities are lost where it has no text.
 * With a parser this engine sends a message in one delta, and SGLang in several.
 */
export class ChatStream {
  readonly #body: Body;
  readonly #parsers: Parsers;
  readonly #shown = new Map<number, { text: number; tokens: number }>();
  readonly #ended: Output[] = [];

  constructor(body: Body, parsers: Parsers) {
    this.#body = body;
    this.#parsers = parsers;
  }

  /** `output` has all of the reply so far. */
  chunks(output: Output): unknown[] {
    const { index = 0, text, meta_info } = output;
    const known = this.#shown.get(index);
    const opening = known
      ? []
      : [this.#chunk(meta_info, { index, delta: { role: 'assistant', content: '', reasoning_content: null } })];
    const shown = known ?? { text: 0, tokens: 0 };
    this.#shown.set(index, shown);
    if (meta_info.finish_reason) this.#ended.push(output);
    const isParsed = this.#parsers.reasoning || (this.#parsers.toolCalls && Boolean(toolsOf(this.#body)));
    if (isParsed && !meta_info.finish_reason) return opening;
    const delta = isParsed
      ? deltaOf(messageOf(this.#body, output, this.#parsers).message)
      : { content: text.slice(shown.text), reasoning_content: null };
    const said =
      isParsed || text.length > shown.text
        ? [this.#chunk(meta_info, { index, delta, logprobs: this.#logprobs(output, shown.tokens) })]
        : [];
    Object.assign(shown, { text: text.length, tokens: meta_info.completion_tokens });
    return [...opening, ...said];
  }

  #logprobs({ meta_info }: Output, from: number) {
    return this.#body.logprobs === true ? { content: logprobsOf(meta_info).slice(from) } : null;
  }

  /** The chunks after the last reply has ended. */
  end(): unknown[] {
    const ends = this.#ended.map((output) => {
      const { finish, matched } = messageOf(this.#body, output, this.#parsers);
      return this.#chunk(output.meta_info, {
        index: output.index ?? 0,
        delta: { reasoning_content: null },
        finish_reason: finish,
        matched_stop: matched,
      });
    });
    const options = this.#body.stream_options;
    const [last] = this.#ended;
    if (!last || !isObject(options) || options.include_usage !== true) return ends;
    return [...ends, { ...this.#head(last.meta_info), choices: [], usage: usageOf(this.#ended) }];
  }

  #head({ id }: MetaInfo) {
    return { id, object: 'chat.completion.chunk', created: seconds(), model: modelOf(this.#body) };
  }

  #chunk(meta: MetaInfo, choice: Body) {
    return {
      ...this.#head(meta),
      choices: [{ logprobs: null, finish_reason: null, matched_stop: null, ...choice }],
    };
  }
}

function deltaOf({
  content,
  reasoning_content,
  tool_calls,
}: {
  content: string;
  reasoning_content: string | null;
  tool_calls?: unknown;
}) {
  return { content, reasoning_content, ...(tool_calls ? { tool_calls } : {}) };
}

const seconds = () => Math.floor(Date.now() / 1000);
const modelOf = ({ model }: Body): unknown => model ?? 'default';
