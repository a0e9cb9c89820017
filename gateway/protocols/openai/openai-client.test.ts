import OpenAI from 'openai';
import { expect, test } from 'vitest';
import { ASK, useGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useGateway();

test('OpenAI’s client lists models and reads plain and streamed replies through the gateway', async () => {
  const { api_key, base_url } = await (await gateway.admin('POST', '/sessions/openai')).json();
  const client = new OpenAI({ apiKey: api_key, baseURL: base_url, maxRetries: 0 });
  expect((await client.models.list()).data.map((model) => model.id)).toEqual(['policy']);
  const messages = [{ role: 'user' as const, content: 'Say hello' }];
  const reply = await client.chat.completions.create({ model: ASK.model, messages });
  expect(reply.choices[0]?.message.content).toBe('Hello 🦀 world\u0000!');
  const stream = await client.chat.completions.create({ model: ASK.model, messages, stream: true });
  let text = '';
  let finish: string | null = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
  }
  expect([text, finish]).toEqual(['Hello 🦀 world\u0000!', 'stop']);
});

test('OpenAI’s client raises an error when a stream from the gateway breaks off', async () => {
  gateway.engine.fault = 'cut';
  const { api_key, base_url } = await (await gateway.admin('POST', '/sessions/cut')).json();
  const client = new OpenAI({ apiKey: api_key, baseURL: base_url, maxRetries: 0 });
  const stream = await client.chat.completions.create({
    model: 'm',
    messages: [{ role: 'user', content: 'x' }],
    stream: true,
  });
  await expect(async () => {
    for await (const _ of stream);
  }).rejects.toThrow(/broke off/);
});

test.each(['an engine that fails', 'engines that get new weights'])(
  'OpenAI’s client retries and is answered when it met %s for a moment',
  async (cause) => {
    const isPaused = cause.startsWith('engines');
    await gateway.restart({ settings: { holdMs: 400 } });
    if (isPaused) await gateway.givePool('run', 'run@1', false);
    else gateway.engine.fault = 'status_503';
    const trial = await gateway.trial(isPaused ? { runId: 'run' } : {});
    const statuses: number[] = [];
    const mending = async (...args: Parameters<typeof fetch>) => {
      const reply = await fetch(...args);
      statuses.push(reply.status);
      gateway.engine.fault = 'none';
      gateway.engine.weightVersion = isPaused ? 'run@1' : gateway.engine.weightVersion;
      if (isPaused) await gateway.givePool('run', 'run@1');
      return reply;
    };
    const client = new OpenAI({ apiKey: trial.key, baseURL: trial.baseUrl, fetch: mending });
    const reply = await client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'x' }] });
    expect(reply.choices[0]?.finish_reason).toBe('stop');
    expect(statuses).toEqual([isPaused ? 429 : 502, 200]);
    expect((await trial.calls()).map(({ status }) => status)).toEqual(['failed', 'completed']);
  },
);

test('OpenAI’s client does not retry a call that the gateway refuses because its attempt is closed', async () => {
  const trial = await gateway.trial();
  let asked = 0;
  const counting = (...args: Parameters<typeof fetch>) => (asked++, fetch(...args));
  const client = new OpenAI({ apiKey: trial.key, baseURL: trial.baseUrl, fetch: counting });
  await gateway.trial({ trialId: trial.id, attempt: 2 });
  await expect(
    client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'x' }] }),
  ).rejects.toMatchObject({ status: 409 });
  expect(asked).toBe(1);
});
