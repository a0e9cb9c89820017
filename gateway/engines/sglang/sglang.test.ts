import { setTimeout } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { readTrainableCalls } from '../../../store/queries/read-trainable-calls.ts';
import {
  ADMIN_KEY,
  ASK,
  eventually,
  IMPATIENT,
  IN_WORKERD,
  readBroken,
  readStream,
} from '../../../tests/support/harness/gateways.ts';
import { useToyGateways } from '../../../tests/support/harness/token-gateway.ts';
import { SglangEngine } from '../../../tests/support/fakes/sglang/sglang-engine.ts';
import { HALVES } from '../../../tests/support/fakes/toy-engine.ts';
import { END } from '../../../tests/support/fakes/toy-tokenizer.ts';
import { exactTrial, onSglang } from '../../../tests/support/scenarios/exact-trial.ts';
import type { JsonObject } from '../../json.ts';

const context = useToyGateways(() => new SglangEngine());
const ask = (content: string) => ({ role: 'user', content });
const TOOLS = [{ type: 'function', function: { name: 'ls', parameters: { type: 'object', properties: {} } } }];
/** A run's settings, under which a chat without tools is streamed as it is sampled. */
const NEUTRAL = { temperature: 1, top_p: 1, top_k: -1, min_p: 0, repetition_penalty: 1 };

test.each([
  [false, 1],
  [true, undefined],
])('a call’s record says whether the model is shown its tools: %s', async (shows, notShown) => {
  await context.serve({ before: ({ body }) => void (shows || delete body.tools) });
  const trial = await context.trial();
  await (await trial.chat({ messages: [ask('look')], tools: TOOLS })).text();
  expect((await trial.calls())[0]?.sampling['tools_not_shown']).toBe(notShown);
});

test('an engine whose chat template fails on the probe’s tool keeps its other traits, and nothing is said of tools', async () => {
  await context.serve({
    before: ({ path, body, response }) => {
      if (path === '/tokenize' && 'tools' in body) response.writeHead(500).end('{}');
    },
  });
  const trial = await context.trial();
  await (await trial.chat({ messages: [ask('look')], ...NEUTRAL })).text();
  await (await trial.chat({ messages: [ask('look')], ...NEUTRAL, tools: TOOLS })).text();
  const [plain, withTools] = await trial.calls();
  expect([plain?.status, plain?.untrainable]).toEqual(['completed', null]);
  expect(withTools?.sampling).not.toHaveProperty('tools_not_shown');
});

/** Collects what the engine is asked. */
function asked(): { path: string; body: JsonObject }[] {
  const all: { path: string; body: JsonObject }[] = [];
  context.toy.before = ({ path, body }) => void all.push({ path, body: { ...body } });
  return all;
}
const postsOf = (all: { path: string }[]) =>
  all.map(({ path }) => path).filter((path) => /generate|completions/.test(path));

const update = (path: string, body: JsonObject = {}) =>
  fetch(context.toy.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

describe.each([
  { parses: true, incremental: false },
  { parses: true, incremental: true },
  { parses: false, incremental: false },
  { parses: false, incremental: true },
])('with an SGLang that parses tool calls: $parses, and streams only what is new: $incremental', (options) => {
  test('a trial’s record equals what the engine was given and gave, and what the agent saw', async () => {
    await context.serve({ ...options, weightVersion: 'run@1', spans: HALVES });
    await context.givePool('run', 'run@1');
    const gateway = { url: context.gateway.url, adminKey: ADMIN_KEY };
    const place = { ...onSglang(gateway, context.toy), opening: { run_id: 'run' } };
    const seeds = IN_WORKERD ? 2 : 8;
    for (let seed = 1; seed <= seeds; seed++)
      expect((await exactTrial(place, `sglang-${Object.values(options).join('-')}-${seed}`, { seed })).faults).toEqual(
        [],
      );
  });
});

test.each([
  ['a stream of text', { stream: true, ...NEUTRAL }, ['/generate']],
  ['a stream whose sampling the model’s folder decides', { stream: true }, ['/v1/chat/completions']],
  ['a stream with tools', { stream: true, ...NEUTRAL, tools: TOOLS }, ['/v1/chat/completions']],
  ['a whole reply', NEUTRAL, ['/v1/chat/completions']],
])('%s is asked for where SGLang returns its ids', async (_, body, paths) => {
  await context.serve();
  const trial = await context.trial();
  const tools = 'tools' in body ? { tools: body.tools } : {};
  const first = await (await trial.chat({ ...ASK, ...tools })).json();
  const all = asked();
  const messages = [...ASK.messages, first.choices[0].message, ask('more')];
  expect((await trial.chat({ ...body, messages })).status).toBe(200);
  await eventually(async () => (await trial.calls()).length === 2);
  expect(postsOf(all)).toEqual(paths);
  expect((await trial.calls()).map(({ continuation, untrainable }) => [continuation, untrainable])).toEqual([
    [null, null],
    ['clean', null],
  ]);
  expect(all.map(({ path }) => path)).not.toContain('/health');
});

test('an engine that parses reasoning is asked for whole replies, and the reasoning goes back to it under its name', async () => {
  await context.serve({ thinks: true });
  const trial = await context.trial();
  context.toy.script = [{ text: '<think>so</think>yes' }, { text: 'end' }];
  const { choices } = await (await trial.chat({ ...ASK, ...NEUTRAL, stream: false })).json();
  expect(choices[0].message).toMatchObject({ content: 'yes', reasoning: 'so' });
  const all = asked();
  const stream = await readStream(
    await trial.chat({ ...NEUTRAL, stream: true, messages: [...ASK.messages, choices[0].message, ask('more')] }),
  );
  expect(stream.done).toBe(true);
  const sent = all.find(({ path }) => path === '/v1/chat/completions')?.body.messages as JsonObject[];
  expect(sent[1]).toMatchObject({ content: 'yes', reasoning_content: 'so' });
  // The template drops earlier thinking before a user's message.
  expect((await trial.calls()).map(({ continuation }) => continuation)).toEqual([null, 'drifted']);
});

test.each([
  ['a stream', { stream: true, ...NEUTRAL }],
  ['a whole reply', {}],
])(
  'each token is recorded under the version that sampled it when weights change in the middle of %s',
  async (_, body) => {
    await context.serve({ weightVersion: 'run@1', pace: 3 });
    await context.givePool('run', 'run@1');
    const trial = await context.trial({ runId: 'run' });
    context.toy.script = [{ text: 'x'.repeat(80) }];
    const reply = trial.chat({ ...ASK, ...body });
    await eventually(() => (context.toy.scheduler.running[0]?.output.length ?? 0) > 5);
    await update('/pause_generation', { mode: 'retract' });
    const sampled = context.toy.scheduler.waiting[0]?.output.length ?? 0;
    await context.givePool('run', 'run@2', false);
    const loaded = await update('/update_weights_from_disk', { model_path: '/weights/2', weight_version: 'run@2' });
    expect(loaded.status).toBe(200);
    await update('/continue_generation');
    expect((await (await reply).text()).length).toBeGreaterThan(0);
    expect(await trial.calls()).toMatchObject([
      {
        status: 'completed',
        untrainable: null,
        versionSpans: [
          { version: 1, start: 0, end: sampled },
          { version: 2, start: sampled, end: 81 },
        ],
      },
    ]);
  },
);

test('a call waits for a pause to end, however long the engine’s health route is silent', async () => {
  await context.serve({ health: { every: 10, until: 50 } }, { settings: IMPATIENT });
  const trial = await context.trial();
  await (await trial.chat(ASK)).json();
  await update('/pause_generation', { mode: 'retract' });
  const reply = trial.chat(ASK);
  await setTimeout(3 * IMPATIENT.idleMs);
  await update('/continue_generation');
  expect((await reply).status).toBe(200);
});

test('after new weights the agent still sees the model’s name, and not where its weights are', async () => {
  await context.serve();
  const trial = await context.trial();
  await update('/update_weights_from_disk', { model_path: '/secret/weights', weight_version: 'run@2' });
  await context.restart();
  const reply = await trial.chat({ ...ASK, ...NEUTRAL, stream: true });
  const text = await reply.text();
  expect(text).toContain('"policy"');
  expect(text).not.toContain('/secret');
});

test.each([
  ['a stream', '/chat/completions', { ...ASK, ...NEUTRAL, stream: true }],
  ['a whole chat', '/chat/completions', ASK],
  ['a text', '/completions', { prompt: 'a'.repeat(200) }],
])('%s with a prompt beyond the context is refused as agents know it', async (_, path, body) => {
  await context.serve({ context: 40 });
  const trial = await context.trial();
  const messages = [ask('a long question that does not fit into forty tokens of context')];
  const reply = await context.post(
    `/${trial.id}/v1${path}`,
    trial.key,
    'messages' in body ? { ...body, messages } : body,
  );
  expect([reply.status, (await reply.json()).error.code]).toEqual([400, 'context_length_exceeded']);
});

test.each([
  ['a stream', '/chat/completions', { ...ASK, ...NEUTRAL, stream: true }],
  ['a whole chat', '/chat/completions', ASK],
  ['a text', '/completions', { prompt: 'a' }],
])('%s that asks for more tokens than fit after its prompt gets as many as fit', async (_, path, body) => {
  await context.serve({ context: 90 });
  const trial = await context.trial();
  const reply = await context.post(`/${trial.id}/v1${path}`, trial.key, { ...body, max_tokens: 1_000_000 });
  expect(reply.status).toBe(200);
  await reply.text();
  expect(await trial.calls()).toMatchObject([{ status: 'completed', untrainable: null }]);
});

test('a continued conversation whose ids leave less room than the agent asks for is cut there', async () => {
  await context.serve({ context: 60 });
  const trial = await context.trial();
  context.toy.script = [{ text: 'abcdefgh' }, { text: 'x'.repeat(50), ends: false }];
  const { choices } = await (await trial.chat({ messages: [ask('a')], max_tokens: 20 })).json();
  const messages = [ask('a'), choices[0].message, ask('b')];
  const next = await (await trial.chat({ messages, max_tokens: 22 })).json();
  expect(next.choices[0].finish_reason).toBe('length');
  expect((await trial.calls()).map(({ continuation }) => continuation)).toEqual([null, 'clean']);
});

test.each([
  ['a stream', { stream: true, ...NEUTRAL }],
  ['a whole reply', {}],
])('%s that the engine aborts fails, and is not a reply', async (_, body) => {
  await context.serve({ pace: 3 });
  const trial = await context.trial();
  context.toy.script = [{ text: 'x'.repeat(500) }];
  const reply = trial.chat({ ...ASK, ...body }).then(readBroken);
  await eventually(() => (context.toy.scheduler.running[0]?.output.length ?? 0) > 5);
  await update('/abort_request', { abort_all: true });
  expect((await reply).text).toMatch(/engine_error/);
  expect(await trial.calls()).toMatchObject([{ status: 'failed', fault: 'engine' }]);
});

test.each([{ stream: true, ...NEUTRAL }, { stream: false }])(
  'an agent that hangs up ends the engine’s request (%j)',
  async (body) => {
    await context.serve({ pace: 3, noticeMs: 20 });
    const trial = await context.trial();
    context.toy.script = [{ text: 'x'.repeat(2_000) }];
    const left = new AbortController();
    const reply = trial.chat({ ...ASK, ...body }, { signal: left.signal }).catch(() => {});
    await eventually(() => context.toy.scheduler.running.length === 1);
    left.abort();
    await reply;
    await eventually(() => context.toy.scheduler.running.length === 0);
    await eventually(async () => (await trial.calls())[0]?.status === 'cancelled');
  },
);

test('a full queue is the engine’s fault, and the call gets another replica', async () => {
  await context.serve();
  const other = await new SglangEngine().start();
  await context.restart({ engines: [context.toy.url, other.url] });
  context.toy.maxQueued = 0;
  const trial = await context.trial();
  for (let i = 0; i < 3; i++) expect((await trial.chat(ASK)).status).toBe(200);
  expect(other.generated).toHaveLength(3);
  await other.stop();
});

test('an agent cannot name another prompt, other requests, adapters, code or cached prefixes', async () => {
  await context.serve();
  const trial = await context.trial();
  await (await trial.chat(ASK)).json();
  const all = asked();
  const forbidden = {
    input_ids: [END],
    rid: '',
    lora_path: '/x',
    custom_logit_processor: 'code',
    session_params: { id: 'x' },
    cache_salt: 'x',
    extra_key: 'x',
    priority: 1,
    return_hidden_states: true,
    kv_hints: {},
  };
  for (const more of [{}, { stream: true, ...NEUTRAL }])
    await (await trial.chat({ ...ASK, ...more, ...forbidden })).text();
  await (await trial.complete({ prompt: 'x', ...forbidden })).json();
  const sent = all.filter(({ path }) => /generate|completions/.test(path));
  expect(sent).toHaveLength(3);
  for (const { body } of sent) {
    const { cache_salt: salt, input_ids: ids, ...rest } = body;
    expect(salt).toBe('default');
    expect(ids).not.toEqual([END]);
    expect(Object.keys(forbidden).filter((field) => field in rest)).toEqual([]);
  }
});

test.each([
  [false, 2, null],
  [true, 1, null],
  [true, 2, 'sampling_not_reproducible'],
])(
  'log-probabilities of the distribution before the temperature (%s) at temperature %d: untrainable is %s',
  async (originalLogprobs, temperature, untrainable) => {
    await context.serve({ originalLogprobs });
    const trial = await context.trial();
    await (await trial.chat({ ...ASK, ...NEUTRAL, temperature })).json();
    expect(await trial.calls()).toMatchObject([{ untrainable }]);
  },
);

const around = (id: number) => [id - 1, id, id + 1];

describe.each([
  ['a stream', { stream: true }],
  ['a whole reply', {}],
])('of %s that excludes tokens', (_, how) => {
  test.each([{ top_p: 0.9 }, { top_k: 5 }, { response_format: { type: 'json_object' } }])(
    'the mask is recorded, and the log-probabilities are those of the tokens that were left (%j)',
    async (more) => {
      await context.serve({ mask: around, maskedLogprob: (id) => -1 / (id + 1) });
      const trial = await context.trial();
      const text = await (await trial.chat({ ...ASK, ...NEUTRAL, ...how, ...more })).text();
      expect(text).not.toContain('sampling_mask');
      const [call] = await trial.calls();
      expect(call).toMatchObject({ untrainable: null, sampling: { top_k: 'top_k' in more ? 5 : 100 } });
      const { completion = [] } = context.toy.generated[0] ?? {};
      expect(call?.logprobs).toEqual(new Float32Array(completion.map((id) => -1 / (id + 1))));
      const [trainable] = await readTrainableCalls(context.db, { trialId: trial.id, attempt: 1 });
      expect(trainable?.samplingMask).toEqual(completion.map(around));
    },
  );
});

test('calls that exclude no tokens are not bounded by a mask', async () => {
  await context.serve();
  const trial = await context.trial();
  const all = asked();
  await (await trial.chat({ ...ASK, ...NEUTRAL })).json();
  const sent = all.find(({ path }) => path === '/v1/chat/completions')?.body;
  expect(sent).toMatchObject({ top_k: -1 });
  expect(sent).not.toHaveProperty('return_sampling_mask');
});

test.each([
  { maskTokens: 4_096, top_k: 3_000 },
  { maskTokens: 60, top_k: 40 },
  { maskTokens: 60, top_p: 0.5 },
])(
  'a mask that may become longer than the engine’s limit is not asked for, because the engine would abort the request (%j)',
  async ({ maskTokens, ...more }) => {
    await context.serve({ maskTokens });
    const trial = await context.trial();
    expect((await trial.chat({ ...ASK, ...NEUTRAL, ...more })).status).toBe(200);
    expect(await trial.calls()).toMatchObject([{ untrainable: 'sampling_not_reproducible' }]);
  },
);

test.each([{ stream: true, ...NEUTRAL }, { stream: false }])(
  'the experts of each token are kept with its call, and a turn that continues has only those that are new (%j)',
  async (how) => {
    await context.serve({ experts: (id) => [id, id + 1] });
    const trial = await context.trial();
    const first = await (await trial.chat(ASK)).json();
    const messages = [...ASK.messages, first.choices[0].message, ask('more')];
    const reply = await (await trial.chat({ ...how, messages })).text();
    expect(reply + JSON.stringify(first)).not.toContain('routed_experts');
    const { turns } = z
      .object({ turns: z.array(turnWithExperts) })
      .parse(await (await context.admin('GET', `/sessions/${trial.id}`)).json());
    const [one, two] = context.toy.generated.map(({ prompt, completion }) => [...prompt, ...completion]);
    const newOnes = [one?.slice(0, -1), two?.slice((one?.length ?? 0) - 1, -1)];
    const kept = turns.map(({ routed_experts: { sha256 } }) =>
      context.admin('GET', `/sessions/${trial.id}/blobs/${sha256}`).then((blob) => blob.arrayBuffer()),
    );
    const expected = newOnes.map((ids = []) => new Int32Array(ids.flatMap((id) => [id, id + 1])));
    expect((await Promise.all(kept)).map((bytes) => new Int32Array(bytes))).toEqual(expected);
    expect(turns.map(({ routed_experts: { form, start, bytes } }) => [form, start, bytes])).toEqual([
      ['int32', 0, expected[0]?.byteLength],
      ['int32', (one?.length ?? 0) - 1, expected[1]?.byteLength],
    ]);
  },
);

const turnWithExperts = z.object({
  routed_experts: z.object({ sha256: z.string(), form: z.string(), start: z.int(), bytes: z.int() }),
});

describe('with a run’s LoRA adapter', () => {
  const load = async (version: number) => {
    const body = { lora_name: `run@${version}`, lora_path: `/adapters/${version}` };
    expect((await update('/load_lora_adapter', body)).status).toBe(200);
    await context.givePool('run', `run@${version}`);
  };

  test.each([
    ['a stream', { stream: true, ...NEUTRAL }, '/generate'],
    ['a whole reply', {}, '/v1/chat/completions'],
  ])('%s is asked for by the adapter’s name, and recorded under it', async (_, body, path) => {
    await context.serve();
    context.toy.adapters.isEnabled = true;
    await load(3);
    const trial = await context.trial({ runId: 'run' });
    const all = asked();
    await (await trial.chat({ ...ASK, ...body })).text();
    expect(all.findLast((each) => each.path === path)?.body).toMatchObject({ lora_path: 'run@3', cache_salt: 'run@3' });
    expect(await trial.calls()).toMatchObject([
      { weightVersion: 'run@3', policyVersion: 3, versionSpans: null, untrainable: null },
    ]);
  });

  test('a call under way when the next adapter is loaded is trainable, and the next call asks for the new one', async () => {
    await context.serve({ pace: 3 });
    context.toy.adapters.isEnabled = true;
    await load(3);
    const trial = await context.trial({ runId: 'run' });
    context.toy.script = [{ text: 'x'.repeat(80) }];
    const all = asked();
    const reply = trial.chat(ASK);
    await eventually(() => (context.toy.scheduler.running[0]?.output.length ?? 0) > 5);
    await load(4);
    expect((await reply).status).toBe(200);
    expect((await trial.chat(ASK)).status).toBe(200);
    const sent = all.filter(({ path }) => path === '/v1/chat/completions');
    expect(sent.map(({ body }) => body.lora_path)).toEqual(['run@3', 'run@4']);
    expect(await trial.calls()).toMatchObject([
      { policyVersion: 3, untrainable: null },
      { policyVersion: 4, untrainable: null },
    ]);
  });

  test('an engine that lost the adapter is the one at fault, and the base model never answers', async () => {
    await context.serve({}, { settings: { holdMs: 400 } });
    context.toy.adapters.isEnabled = true;
    await load(3);
    const trial = await context.trial({ runId: 'run' });
    // The gateway knows the models after the second call, because the new connection of the first one may lead to another process.
    for (let i = 0; i < 2; i++) expect((await trial.chat(ASK)).status).toBe(200);
    context.toy.adapters.forget();
    const statuses = [(await trial.chat(ASK)).status, (await trial.chat(ASK)).status];
    expect(statuses).toEqual([502, 503]);
  });
});

test.each([true, false])('an agent gets the log-probabilities that it asks for (stream: %s)', async (stream) => {
  await context.serve();
  const trial = await context.trial();
  context.toy.script = [{ text: 'né' }];
  const body = { ...ASK, ...NEUTRAL, stream, logprobs: true, top_logprobs: 2 };
  const reply = await trial.chat(body);
  const choices = stream
    ? (await readStream(reply)).chunks.flatMap((chunk) => chunk.choices ?? [])
    : (await reply.json()).choices;
  const entries = choices.flatMap(({ logprobs }: { logprobs?: { content: JsonObject[] } }) => logprobs?.content ?? []);
  const ids = context.toy.generated[0]?.completion ?? [];
  expect(entries.map(({ logprob }: JsonObject) => logprob)).toEqual(ids.map(context.toy.logprob));
  expect(entries[0]).toMatchObject({ token: 'n', top_logprobs: [{ token: 'n' }, { token: 'o' }] });
});
