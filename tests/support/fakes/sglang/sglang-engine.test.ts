import { afterEach, beforeEach, expect, test } from 'vitest';
import { isObject, parseObject } from '../../../../gateway/json.ts';
import { until } from '../../harness/until.ts';
import { encode, END, misspell, template } from '../toy-tokenizer.ts';
import { SglangEngine } from './sglang-engine.ts';

let engine: SglangEngine;
beforeEach(async () => void (engine = await new SglangEngine().start()));
afterEach(() => engine.stop());

type Body = Record<string, unknown>;

async function send(path: string, body?: Body, signal?: AbortSignal): Promise<Response> {
  return fetch(engine.url + path, {
    method: body ? 'POST' : 'GET',
    headers: { 'content-type': 'application/json' },
    ...(body ? { body: JSON.stringify(body) } : {}),
    ...(signal ? { signal } : {}),
  });
}

const ask = async (path: string, body?: Body) => (await (await send(path, body)).json()) as Body;
const metaOf = ({ meta_info }: Body): Body => (isObject(meta_info) ? meta_info : {});

const PROMPT = encode('hello');
const GENERATE = {
  input_ids: PROMPT,
  sampling_params: { max_new_tokens: 100 },
  return_logprob: true,
  return_prompt_token_ids: true,
};

async function streamOf(path: string, body: Body): Promise<Body[]> {
  const text = await (await send(path, { ...body, stream: true })).text();
  expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
  return text
    .split('\n\n')
    .filter((event) => event.startsWith('data: {'))
    .map((event) => parseObject(event.slice(6)) ?? {});
}

test('it returns ids with the one that ended the reply, text without it, log-probabilities as triples, and versions', async () => {
  engine.script = [{ text: 'né' }];
  const reply = await ask('/generate', { ...GENERATE, rid: 'mine' });
  const ids = [...misspell('né'), END];
  expect(reply).toMatchObject({ text: 'né', output_ids: ids, prompt_token_ids: PROMPT });
  expect(metaOf(reply)).toMatchObject({
    id: 'mine',
    finish_reason: { type: 'stop', matched: END },
    prompt_tokens: PROMPT.length,
    completion_tokens: ids.length,
    output_token_logprobs: ids.map((id) => [engine.logprob(id), id, null]),
    input_token_logprobs: [],
    weight_version: 'default',
    weight_versions: [{ version: 'default', start: 0, end: ids.length }],
  });
});

test('from a start of 0 it returns the log-probabilities of the prompt, with none for its first token', async () => {
  const { input_token_logprobs } = metaOf(await ask('/generate', { ...GENERATE, logprob_start_len: 0 }));
  expect(input_token_logprobs).toEqual(PROMPT.map((id, i) => [i === 0 ? null : engine.logprob(id), id, null]));
});

test.each([false, true])(
  'each event of a stream has the whole reply so far, or only what is new (incremental: %s)',
  async (incremental) => {
    Object.assign(engine, { incremental });
    engine.script = [{ text: 'aé' }];
    const events = await streamOf('/generate', GENERATE);
    const ids = [...misspell('aé'), END];
    const counts = events.map((event) => metaOf(event).completion_tokens);
    expect(counts).toEqual([1, 2, 3, 4]);
    expect(events.map(({ output_ids }) => output_ids)).toEqual(
      ids.map((id, i) => (incremental ? [id] : ids.slice(0, i + 1))),
    );
    expect(events.map(({ text }) => text)).toEqual(incremental ? ['a', '', 'é', ''] : ['a', 'a', 'aé', 'aé']);
    expect(events.map((event) => (metaOf(event).output_token_logprobs as unknown[]).length)).toEqual(
      incremental ? [1, 1, 1, 1] : [1, 2, 3, 4],
    );
    expect(events.map((event) => metaOf(event).weight_versions !== undefined)).toEqual([false, false, false, true]);
  },
);

test('several replies come as a list, or as events that say whose they are', async () => {
  engine.script = ['a', 'b', 'c', 'd'].map((text) => ({ text }));
  const asked = { ...GENERATE, sampling_params: { max_new_tokens: 100, n: 2 } };
  const replies = (await ask('/generate', asked)) as unknown as Body[];
  expect(replies.map(({ text }) => text)).toEqual(['a', 'b']);
  const events = await streamOf('/generate', asked);
  expect(events.filter((event) => metaOf(event).finish_reason).map(({ index, text }) => [index, text])).toEqual([
    [0, 'c'],
    [1, 'd'],
  ]);
});

test('a reply ends at a stop string with the token that completes it, and its text does not have it', async () => {
  engine.script = Array.from({ length: 2 }, () => ({ text: 'two ends here' }));
  const asked = { ...GENERATE, sampling_params: { max_new_tokens: 100, stop: ['ends'] } };
  expect(await ask('/generate', asked)).toMatchObject({
    text: 'two ',
    output_ids: misspell('two ends'),
    meta_info: { finish_reason: { type: 'stop', matched: 'ends' } },
  });
  // Text that may become the stop string is held back.
  expect((await streamOf('/generate', asked)).map(({ text }) => text)).toEqual(['t', 'tw', 'two', 'two ', 'two ']);
});

test('a reply ends by its length at the limit of new tokens', async () => {
  engine.script = [{ text: 'abcdef' }];
  expect(await ask('/generate', { ...GENERATE, sampling_params: { max_new_tokens: 3 } })).toMatchObject({
    text: 'abc',
    meta_info: { finish_reason: { type: 'length', length: 3 } },
  });
});

test('it refuses unknown sampling parameters with a text as the error, and others with an object', async () => {
  const unknown = await send('/generate', { ...GENERATE, sampling_params: { max_tokens: 1 } });
  expect([unknown.status, typeof ((await unknown.json()) as Body).error]).toEqual([400, 'string']);
  const wrong = await send('/generate', { ...GENERATE, sampling_params: { top_p: 2 } });
  expect([wrong.status, await wrong.json()]).toEqual([
    400,
    { error: { message: expect.stringContaining('top_p') as unknown } },
  ]);
  expect((await send('/generate', { text: 'x', unknown: 1 })).status).toBe(200);
});

test('a prompt beyond the context, or with more new tokens than fit, is refused; a stream says it in its first event', async () => {
  engine.context = 10;
  const long = { ...GENERATE, input_ids: Array<number>(10).fill(50) };
  const refused = await send('/generate', long);
  expect([refused.status, await refused.text()]).toEqual([
    400,
    expect.stringContaining("longer than the model's context length (10 tokens)"),
  ]);
  expect(await streamOf('/generate', long)).toEqual([
    {
      error: {
        message: expect.any(String) as unknown,
        type: 'invalid_request_error',
        code: 400,
        retryable: false,
      },
    },
  ]);
  const chat = await send('/v1/chat/completions', { messages: [{ role: 'user', content: 'x' }], max_tokens: 100 });
  expect([chat.status, await chat.json()]).toMatchObject([400, { object: 'error', code: 400 }]);
});

test('without a limit a reply may fill the context but for two tokens', async () => {
  engine.context = 20;
  engine.script = [{ text: 'a'.repeat(50) }];
  const { output_ids } = await ask('/generate', { input_ids: PROMPT, sampling_params: { max_new_tokens: null } });
  expect(output_ids).toHaveLength(20 - PROMPT.length - 2);
});

test('an abort ends a reply with what there is, after one more token; one in the queue ends without any', async () => {
  Object.assign(engine, { pace: 5, maxRunning: 1 });
  engine.script = Array.from({ length: 2 }, () => ({ text: 'x'.repeat(1_000), ends: false }));
  const running = ask('/generate', { ...GENERATE, rid: 'a', sampling_params: { max_new_tokens: 1_000 } });
  await until(() => engine.scheduler.running.length === 1);
  const waiting = ask('/generate', { ...GENERATE, rid: 'b', sampling_params: { max_new_tokens: 1_000 } });
  await until(() => engine.scheduler.waiting.length === 1);
  await send('/abort_request', { rid: 'b' });
  expect(await waiting).toMatchObject({
    output_ids: [],
    meta_info: { finish_reason: { type: 'abort', message: 'Abort in waiting queue' } },
  });
  await send('/abort_request', { rid: 'a' });
  const { meta_info, output_ids } = await running;
  expect(meta_info).toMatchObject({ finish_reason: { type: 'abort', message: 'Aborted', status_code: null } });
  expect((output_ids as unknown[]).length).toBeGreaterThan(0);
});

test('an id is taken as the beginning of ids, and one that is in use is refused', async () => {
  engine.pace = 5;
  engine.script = Array.from({ length: 3 }, () => ({ text: 'x'.repeat(1_000), ends: false }));
  const long = { ...GENERATE, sampling_params: { max_new_tokens: 1_000 } };
  const replies = ['a', 'ab'].map((rid) => ask('/generate', { ...long, rid }));
  await until(() => engine.scheduler.running.length === 2);
  expect((await send('/generate', { ...long, rid: 'a' })).status).toBe(400);
  await send('/abort_request', { rid: 'a' });
  for (const reply of await Promise.all(replies)) expect(metaOf(reply).finish_reason).toMatchObject({ type: 'abort' });
});

test('a client that hangs up ends its request', async () => {
  engine.pace = 5;
  engine.script = [{ text: 'x'.repeat(1_000), ends: false }];
  const left = new AbortController();
  const reply = await send('/generate', { ...GENERATE, stream: true }, left.signal);
  await until(() => engine.scheduler.running.length === 1);
  left.abort();
  await until(() => engine.scheduler.running.length === 0);
  expect(reply.status).toBe(200);
  expect(engine.generated[0]?.completion.length).toBeLessThan(1_000);
});

test.each(['retract', 'in_place'])(
  'a pause by `%s` holds replies, which go on under the new weights; versions say from where',
  async (mode) => {
    engine.pace = 2;
    engine.weightVersion = 'run@1';
    engine.script = [{ text: 'x'.repeat(60) }];
    const reply = ask('/generate', GENERATE);
    await until(() => (engine.scheduler.running[0]?.output.length ?? 0) > 5);
    await ask('/pause_generation', { mode });
    const before = engine.scheduler.running[0] ?? engine.scheduler.waiting[0];
    const sampled = before?.output.length ?? 0;
    expect((await send('/ready')).status).toBe(503);
    const update = { model_path: '/weights/2', weight_version: 'run@2', flush_cache: mode === 'retract' };
    expect(await ask('/update_weights_from_disk', update)).toMatchObject({ success: true });
    expect(before?.output.length).toBe(sampled);
    expect((await ask('/model_info')).weight_version).toBe('run@2');
    const later = ask('/generate', GENERATE);
    await ask('/continue_generation', {});
    expect(metaOf(await reply)).toMatchObject({
      weight_version: 'run@2',
      num_retractions: mode === 'retract' ? 1 : 0,
      weight_versions: [
        { version: 'run@1', start: 0, end: sampled },
        { version: 'run@2', start: sampled, end: 61 },
      ],
    });
    expect(metaOf(await later)).toMatchObject({ weight_versions: [{ version: 'run@2' }] });
  },
);

test('a flush fails while requests run, and an update that wants one then fails although the weights are new', async () => {
  engine.pace = 2;
  engine.script = [{ text: 'x'.repeat(60) }];
  const reply = ask('/generate', GENERATE);
  await until(() => engine.scheduler.running.length === 1);
  await ask('/pause_generation', { mode: 'in_place' });
  expect((await send('/flush_cache', {})).status).toBe(400);
  const refused = await send('/update_weights_from_disk', { model_path: '/weights/2', weight_version: 'run@2' });
  expect([refused.status, await refused.json()]).toMatchObject([400, { success: false }]);
  expect((await ask('/model_info')).weight_version).toBe('default');
  await ask('/continue_generation', {});
  expect(metaOf(await reply).weight_version).toBe('run@2');
});

test('a pause by `abort` ends all requests, and new ones wait for its end', async () => {
  engine.pace = 2;
  engine.script = [{ text: 'x'.repeat(500) }];
  const reply = ask('/generate', GENERATE);
  await until(() => engine.scheduler.running.length === 1);
  await ask('/pause_generation', {});
  expect(metaOf(await reply).finish_reason).toMatchObject({ type: 'abort' });
  const later = ask('/generate', GENERATE);
  await ask('/continue_generation', {});
  expect(await later).toMatchObject({ text: 'nothing to say' });
});

test('without a pause new weights wait until no request is open', async () => {
  engine.pace = 2;
  engine.script = [{ text: 'x'.repeat(20) }];
  const reply = ask('/generate', GENERATE);
  await until(() => engine.scheduler.running.length === 1);
  const updated = ask('/update_weights_from_disk', { model_path: '/weights/2', weight_version: 'run@2' });
  expect(metaOf(await reply)).toMatchObject({ weight_version: 'default' });
  expect(await updated).toMatchObject({ success: true });
});

test('after new weights it is served under their path, which its start-up settings do not tell', async () => {
  await ask('/update_weights_from_disk', { model_path: '/weights/2' });
  expect(await ask('/model_info')).toMatchObject({ model_path: '/weights/2', served_model_name: '/weights/2' });
  expect(await ask('/v1/models')).toMatchObject({ data: [{ id: '/weights/2' }] });
  expect(await ask('/server_info')).toMatchObject({ model_path: 'toy' });
});

test('weights that cannot be loaded are refused, and the version stays', async () => {
  engine.loadWeights = () => 'no such folder';
  const reply = await send('/update_weights_from_disk', { model_path: '/none', weight_version: 'run@2' });
  expect([reply.status, await reply.json()]).toMatchObject([400, { success: false }]);
  expect((await ask('/model_info')).weight_version).toBe('default');
});

test('a full queue is answered by 503', async () => {
  Object.assign(engine, { pace: 5, maxRunning: 1, maxQueued: 0 });
  const reply = await send('/generate', GENERATE);
  expect([reply.status, await reply.json()]).toMatchObject([503, { object: 'error', code: 503 }]);
});

test('a health check samples a token, so there is none during a pause', async () => {
  engine.health = { every: 5, until: 100 };
  expect((await send('/health')).status).toBe(200);
  await ask('/pause_generation', { mode: 'retract' });
  expect((await send('/health')).status).toBe(503);
  expect((await send('/model_info')).status).toBe(200);
});

test('the prefix that a flush takes is computed again, and so is one under another salt', async () => {
  const cached = async (more: Body = {}) => metaOf(await ask('/generate', { ...GENERATE, ...more })).cached_tokens;
  expect([await cached(), await cached()]).toEqual([0, PROMPT.length - 1]);
  expect(await cached({ cache_salt: 'other' })).toBe(0);
  await send('/flush_cache', {});
  expect(await cached()).toBe(0);
});

const MESSAGES = [{ role: 'user', content: 'hi' }];
const TOOLS = [{ type: 'function', function: { name: 'ls', parameters: {} } }];

test('a conversation is tokenized as the chat route does, or without the beginning of a reply', async () => {
  const open = encode(template({ messages: MESSAGES }));
  expect((await ask('/tokenize', { messages: MESSAGES })).tokens).toEqual(open);
  const closed = encode(template({ messages: MESSAGES, add_generation_prompt: false }));
  expect((await ask('/tokenize', { messages: MESSAGES, add_generation_prompt: false })).tokens).toEqual(closed);
  engine.script = [{ text: 'x' }];
  await ask('/v1/chat/completions', { messages: MESSAGES });
  expect(engine.generated[0]?.prompt).toEqual(open);
});

test('a conversation with a picture, or with arguments that are no JSON, is refused', async () => {
  const picture = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:' } }] }];
  const call = { id: 'a', type: 'function', function: { name: 'ls', arguments: '{' } };
  for (const messages of [picture, [...MESSAGES, { role: 'assistant', content: '', tool_calls: [call] }]])
    expect((await send('/tokenize', { messages })).status).toBe(400);
});

test('the chat route takes ids for a prompt, and returns ids, log-probabilities and versions with the parsed message', async () => {
  Object.assign(engine, { thinks: true });
  const text = '<think>so</think>see: <tool_call>{"name": "ls", "arguments": {"a":[1,2]}}</tool_call>';
  engine.script = [{ text }];
  const asked = { messages: MESSAGES, tools: TOOLS, input_ids: PROMPT, logprobs: true };
  const reply = await ask('/v1/chat/completions', { ...asked, return_token_ids: true, return_meta_info: true });
  const ids = [...misspell(text), END];
  expect(reply).toMatchObject({
    choices: [
      {
        message: {
          content: 'see:',
          reasoning_content: 'so',
          tool_calls: [{ type: 'function', function: { name: 'ls', arguments: '{"a": [1, 2]}' } }],
        },
        finish_reason: 'tool_calls',
        matched_stop: null,
        prompt_token_ids: PROMPT,
        response_token_ids: ids,
        meta_info: { weight_versions: [{ version: 'default', start: 0, end: ids.length }] },
      },
    ],
    usage: { prompt_tokens: PROMPT.length, completion_tokens: ids.length },
    metadata: { weight_version: 'default' },
  });
  const [{ logprobs }] = reply.choices as [{ logprobs: { content: unknown[] } }];
  expect(logprobs.content).toHaveLength(ids.length);
});

test('calls of unknown tools are dropped with the text after them, and text that is no JSON stays', async () => {
  const parse = (text: string) => ask('/parse_function_call', { text, tools: TOOLS, tool_call_parser: 'hermes' });
  expect(await parse('so: <tool_call>{"name": "rm"}</tool_call>')).toEqual({ normal_text: 'so:', calls: [] });
  const broken = 'so: <tool_call>{</tool_call>';
  expect(await parse(broken)).toEqual({ normal_text: broken, calls: [] });
  expect(await ask('/separate_reasoning', { text: '<think>a</think>b', reasoning_parser: 'qwen3' })).toEqual({
    reasoning_text: 'a',
    text: 'b',
  });
});

test('a streamed chat has no ids and no versions, and refuses to be asked for them', async () => {
  Object.assign(engine, { parses: false, incremental: true });
  engine.script = [{ text: 'abc' }];
  const asked = { messages: MESSAGES, logprobs: true, stream_options: { include_usage: true } };
  const events = await streamOf('/v1/chat/completions', asked);
  const choices = events.flatMap(({ choices: all }) => all as Body[]);
  expect(choices.map(({ delta }) => (delta as Body).content ?? '').join('')).toBe('abc');
  expect(choices.at(-1)).toMatchObject({ finish_reason: 'stop', matched_stop: END });
  // The log-probability of the token that ended it is lost.
  expect(choices.flatMap(({ logprobs }) => (isObject(logprobs) ? (logprobs.content as unknown[]) : []))).toHaveLength(
    3,
  );
  expect(JSON.stringify(events)).not.toContain('weight_version');
  for (const field of ['return_token_ids', 'return_meta_info', 'return_prompt_token_ids'])
    expect((await send('/v1/chat/completions', { messages: MESSAGES, stream: true, [field]: true })).status).toBe(400);
});

test('it returns the ids that could be sampled, if few enough could', async () => {
  engine.mask = (id) => [id, 7];
  engine.script = [{ text: 'a' }];
  const asked = { ...GENERATE, return_sampling_mask: true };
  expect((await send('/generate', asked)).status).toBe(400);
  const ids = [...misspell('a'), END];
  const reply = await ask('/generate', { ...asked, sampling_params: { top_k: 50 } });
  expect(metaOf(reply).output_token_sampling_mask).toEqual(ids.map((id) => [id, 7]));
});

test('it returns the experts of all tokens but the last, from where it is asked on, if it captures them', async () => {
  engine.script = ['a', 'a', 'a'].map((text) => ({ text }));
  const asked = { ...GENERATE, return_routed_experts: true };
  expect(metaOf(await ask('/generate', asked))).not.toHaveProperty('routed_experts');
  engine.experts = (id) => [id, 1];
  expect(metaOf(await ask('/generate', GENERATE))).not.toHaveProperty('routed_experts');
  const { routed_experts: all } = metaOf(await ask('/generate', { ...asked, routed_experts_start_len: 2 }));
  const bytes = new Uint8Array(Buffer.from(String(all), 'base64'));
  const ids = [...PROMPT, ...misspell('a')].slice(2);
  expect([...new Int32Array(bytes.buffer)]).toEqual(ids.flatMap((id) => [id, 1]));
  expect((await send('/generate', { ...asked, routed_experts_start_len: PROMPT.length + 1 })).status).toBe(400);
});

test('it lists the adapters that are loaded, and loads one again that a request asks for after it was unloaded', async () => {
  const load = { lora_name: 'a', lora_path: '/a' };
  const listed = async () => ((await ask('/v1/models')).data as Body[]).map(({ id, parent }) => [id, parent]);
  expect((await send('/load_lora_adapter', load)).status).toBe(400);
  engine.adapters.isEnabled = true;
  expect(await ask('/load_lora_adapter', load)).toMatchObject({ success: true, loaded_adapters: { a: '/a' } });
  expect((await send('/load_lora_adapter', load)).status).toBe(400);
  expect(await listed()).toEqual([
    ['policy', null],
    ['a', 'policy'],
  ]);
  expect((await send('/unload_lora_adapter', { lora_name: 'a' })).status).toBe(200);
  expect(await listed()).toEqual([['policy', null]]);
  expect((await send('/generate', { ...GENERATE, lora_path: 'a' })).status).toBe(200);
  expect(await listed()).toHaveLength(2);
  const refused = await send('/generate', { ...GENERATE, lora_path: 'b' });
  expect([refused.status, await refused.text()]).toEqual([400, expect.stringContaining('never been loaded')]);
});

test('it reports its load, its checksums and the text of ids', async () => {
  expect(await ask('/v1/loads')).toMatchObject({ loads: [{ num_running_reqs: 0, num_waiting_reqs: 0 }] });
  const before = await ask('/weights_checker', {});
  await ask('/update_weights_from_disk', { model_path: '/weights/2' });
  expect((await ask('/weights_checker', {})).per_engine_checksum).not.toBe(before.per_engine_checksum);
  const tokens = [...misspell('a'), END];
  expect(await ask('/detokenize', { tokens })).toEqual({ text: 'a' });
  expect(await ask('/detokenize', { tokens, skip_special_tokens: false })).toEqual({ text: 'a<|im_end|>' });
  expect((await send('/unknown')).status).toBe(404);
  expect((await send('/generate')).status).toBe(405);
});

test('with metrics it counts the prompts of requests that have ended, and what of them was cached', async () => {
  expect((await send('/metrics')).status).toBe(404);
  engine.hasMetrics = true;
  engine.health = { every: 5, until: 100 };
  const counted = async () =>
    [
      ...(await (await send('/metrics')).text()).matchAll(/^sglang:((?:prompt|cached)_tokens_total)\{(.+)\} (.+)$/gm),
    ].map(([, ...sample]) => sample);
  await send('/health');
  expect([await (await send('/metrics')).text(), await counted()]).toEqual([
    expect.stringContaining('sglang:num_running_reqs{'),
    [],
  ]);
  const size = PROMPT.length;
  const LABELS = 'engine_type="unified",model_name="policy"';
  await ask('/generate', GENERATE);
  expect(await counted()).toEqual([['prompt_tokens_total', `is_streaming="false",${LABELS}`, `${size}.0`]]);
  await streamOf('/generate', GENERATE);
  await ask('/generate', { ...GENERATE, cache_salt: 'other' });
  expect(await counted()).toEqual([
    ['prompt_tokens_total', `is_streaming="false",${LABELS}`, `${2 * size}.0`],
    ['prompt_tokens_total', `is_streaming="true",${LABELS}`, `${size}.0`],
    ['cached_tokens_total', `cache_source="device",${LABELS}`, `${size - 1}.0`],
  ]);
});

test('its log-probabilities are of the distribution at the temperature, unless it is told otherwise', async () => {
  const distance = async (temperature: number) => {
    const sampling_params = { max_new_tokens: 2, temperature };
    const { output_top_logprobs: top } = metaOf(
      await ask('/generate', { ...GENERATE, sampling_params, top_logprobs_num: 2 }),
    );
    const [[[more], [less]]] = top as [[[number], [number]], ...unknown[]];
    return more - less;
  };
  expect([await distance(1), await distance(2)]).toEqual([1, 0.5]);
  engine.originalLogprobs = true;
  expect(await distance(2)).toBe(1);
});
