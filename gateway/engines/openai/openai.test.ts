import { sql } from 'drizzle-orm';
import OpenAI from 'openai';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ADMIN_KEY, IMPATIENT, IN_WORKERD, useGateway } from '../../../tests/support/harness/gateways.ts';
import { TestWorker } from '../../../tests/support/harness/relay.ts';
import { OpenAiServer } from '../../../tests/support/fakes/openai-server.ts';
import { PROTOCOLS } from '../../protocols/all.ts';

const gateway = useGateway();
let server: OpenAiServer;
beforeEach(async () => {
  server = await new OpenAiServer().start();
  await gateway.restart({ engines: [`openai+${server.url}`] });
});
afterEach(() => server.stop());

const messages = [{ role: 'user' as const, content: 'Say hello' }];
const ASKED: Record<string, object> = {
  chat_completions: { messages },
  completions: { prompt: 'Say hello' },
  messages: { messages, max_tokens: 9 },
  responses: { input: 'Say hello' },
  gemini: { contents: [{ parts: [{ text: 'Say hello' }] }] },
};

test.each(PROTOCOLS)(
  '$name: a server that knows only OpenAI’s own fields answers, and its calls are recorded with their text and cannot be trained on',
  async ({ name, path }) => {
    const trial = await gateway.trial();
    const isByUrl = name === 'gemini';
    for (const stream of [false, true]) {
      const url = isByUrl && stream ? path.replace(':generateContent', ':streamGenerateContent?alt=sse') : path;
      const reply = await gateway.post(url, trial.key, { ...ASKED[name], ...(isByUrl ? {} : { stream }) });
      expect([reply.status, (await reply.text()).includes('Hello')]).toEqual([200, true]);
    }
    const calls = await trial.calls();
    expect(calls).toHaveLength(2);
    for (const call of calls) {
      expect(call).toMatchObject({ status: 'completed', finishReason: 'stop', untrainable: 'no_token_ids' });
      expect(JSON.stringify(call.response)).toContain('Hello 🦀');
      expect(call.engine).toBe(`openai+${server.url}`);
    }
  },
);

test('OpenAI’s client gets several replies, the models and the counts of a stream', async () => {
  const { api_key, base_url } = await (await gateway.admin('POST', '/sessions/openai')).json();
  const client = new OpenAI({ apiKey: api_key, baseURL: base_url, maxRetries: 0 });
  expect((await client.models.list()).data.map(({ id }) => id)).toEqual(['gpt']);
  const { choices } = await client.chat.completions.create({ model: 'any', messages, n: 2 });
  expect(choices.map(({ message }) => message.content)).toEqual(['Hello 🦀', 'Hello 🦀']);
  const stream = await client.chat.completions.create({
    model: 'any',
    messages,
    stream: true,
    stream_options: { include_usage: true },
  });
  let total = 0;
  for await (const { usage } of stream) total += usage?.total_tokens ?? 0;
  expect(total).toBe(9);
});

test('the trial of an evaluation is served with its run’s sampling, without settings that OpenAI lacks and that nobody chose', async () => {
  await gateway.givePool('evaluated', null);
  const trial = await gateway.trial({ runId: 'evaluated', policyVersion: 0, sampling: { temperature: 0.5 } });
  expect((await trial.chat({ messages, max_tokens: 9, seed: 1 })).status).toBe(200);
  const sampling = { temperature: 0.5, top_p: 1, presence_penalty: 0, frequency_penalty: 0, max_tokens: 9 };
  expect(server.asked.at(-1)?.body).toEqual({ model: 'gpt', messages, ...sampling });
  const [call] = await trial.calls();
  expect(call).toMatchObject({ status: 'completed', policyVersion: null, untrainable: 'no_token_ids', sampling });
  expect(call?.sampling).not.toHaveProperty('top_k');
});

test.each([
  ['the run’s settings', { runId: 'evaluated', sampling: { top_k: -1 } }, {}],
  ['an agent to which the run leaves it', { runId: 'evaluated', sampling: { top_k: 'agent' as const } }, { top_k: -1 }],
  ['an agent outside any run', {}, { top_k: -1 }],
])('a setting that OpenAI lacks is sent, also at its neutral value, when %s chose it', async (_, of, asked) => {
  await gateway.givePool('evaluated', null);
  const trial = await gateway.trial({ policyVersion: 0, ...of });
  await trial.chat({ messages, ...asked });
  expect(server.asked.at(-1)?.body).toMatchObject({ top_k: -1 });
  expect(server.asked.at(-1)?.body).not.toHaveProperty('min_p');
});

test('a run gets no reply of a server that it does not have', async () => {
  await gateway.restart({ engines: [`openai+${server.url}`], settings: IMPATIENT });
  const trial = await gateway.trial({ runId: 'another' });
  expect((await trial.chat({ messages })).status).toBe(503);
});

test('a trial there gets a reward', async () => {
  const trial = await gateway.trial();
  await trial.chat({ messages });
  const reply = await gateway.post(`/sessions/${trial.id}/reward`, trial.key, { reward: 0.5 });
  expect(await reply.json()).toMatchObject({ reported_reward: 0.5 });
});

test.each([
  [400, 400],
  [429, 429],
  [503, 502],
])('a refusal of the server with %d reaches the agent as %d', async (status, expected) => {
  const trial = await gateway.trial();
  server.status = status;
  expect((await trial.chat({ messages })).status).toBe(expected);
  expect(await trial.calls()).toMatchObject([{ status: 'failed', httpStatus: expected }]);
});

test('counting tokens there is refused with what is missing', async () => {
  const trial = await gateway.trial();
  const reply = await gateway.post('/v1/messages/count_tokens', trial.key, { messages });
  expect([reply.status, await reply.text()]).toEqual([501, expect.stringContaining('does not count tokens')]);
});

test.skipIf(IN_WORKERD)('the gateway’s log says at the start that nothing can be trained on there, and why', () => {
  expect(gateway.log).toContainEqual(expect.stringMatching(/openai\+http.*none can be trained on.*no token ids/));
});

/** Returns the tables of the database in which this text stands anywhere. */
async function tablesWith(text: string): Promise<string[]> {
  const { rows } = await gateway.db.execute<{ name: string }>(
    sql`select table_name as name from information_schema.tables where table_schema = 'public'`,
  );
  const found = await Promise.all(
    rows.map(async ({ name }) => {
      const like = sql`select count(*)::int as size from ${sql.identifier(name)} as t where t::text like ${`%${text}%`}`;
      const [row] = (await gateway.db.execute<{ size: number }>(like)).rows;
      return row?.size ? [name] : [];
    }),
  );
  return found.flat();
}

test('a server with a base path and a key gets both; the key is in no row, reply or line of the log, also when it is refused', async () => {
  const [key, wrong] = ['sk-right-19c2', 'sk-wrong-77ab'];
  Object.assign(server, { base: '/api/v1', key });
  const { host } = new URL(server.url);
  const start = (given: string) =>
    gateway.restart({ engines: [`openai+${server.url}/api/v1`], engineKeys: { [host]: given } });
  const seen: string[] = [];
  const ask = async () => {
    const trial = await gateway.trial();
    const reply = await trial.chat({ messages });
    seen.push(await reply.text());
    for (const path of ['/health', '/metrics', '/engines']) seen.push(await (await gateway.admin('GET', path)).text());
    seen.push(...gateway.log);
    return { status: reply.status, call: (await trial.calls())[0] };
  };
  await start(wrong);
  expect(await ask()).toMatchObject({
    status: 502,
    call: {
      status: 'failed',
      fault: 'engine',
      reason: expect.stringContaining("wants a key, or refuses the gateway's"),
    },
  });
  await start(key);
  expect(await ask()).toMatchObject({
    status: 200,
    call: { status: 'completed', engine: `openai+${server.url}/api/v1` },
  });
  expect(server.asked.map(({ path }) => path)).toContain('/api/v1/chat/completions');
  for (const each of [key, wrong]) {
    expect(seen.filter((text) => text.includes(each))).toEqual([]);
    expect(await tablesWith(each)).toEqual([]);
  }
  expect(await tablesWith('/api/v1')).toContain('replicas');
});

test.skipIf(IN_WORKERD)(
  'behind a relay worker such a server gets its base path and the key that the worker has',
  async () => {
    Object.assign(server, { base: '/api/v1', key: 'sk-right' });
    await gateway.restart({ engines: ['relay'] });
    const worker = new TestWorker({
      gateway: gateway.gateway.url,
      engine: `openai+${server.url}/api/v1`,
      engineKeys: { [new URL(server.url).host]: 'sk-right' },
      id: 'w1',
      adminKey: ADMIN_KEY,
    });
    try {
      const trial = await gateway.trial();
      expect((await trial.chat({ messages })).status).toBe(200);
      expect(await trial.calls()).toMatchObject([{ status: 'completed', engine: 'openai+relay:w1' }]);
    } finally {
      await worker.stop();
    }
  },
);
