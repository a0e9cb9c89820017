import { expect, test } from 'vitest';
import { MOST_REFUSALS, type RefusalSummary } from '../../store/queries/refusals.ts';
import { ASK, eventually, IN_WORKERD, useGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useGateway({ settings: { maxBodyBytes: 2_000 } });
const SPOILED = {
  model: 'm',
  max_tokens: 5,
  messages: [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'a secret' },
        { type: 'text', text: 7 },
      ],
    },
  ],
};

const refusalsOf = async (id: string): Promise<RefusalSummary> =>
  (await (await gateway.admin('GET', `/sessions/${id}`)).json()).refusals;

test('the gateway counts and logs refused requests and keeps them with their trial, without their bodies', async () => {
  const trial = await gateway.trial();
  expect(await refusalsOf(trial.id)).toEqual({ count: 0, latest: [] });
  await gateway.post(`/${trial.id}/v1/messages`, trial.key, SPOILED);
  await trial.chat('{"messages": nothing}');
  await trial.chat({ ...ASK, more: 'x'.repeat(3_000) });
  await gateway.post(`/${trial.id}/v1/messages/count_tokens`, trial.key, {});
  await gateway.post(`/${trial.id}/v1/chat/completions`, 'a wrong key', ASK);
  await trial.chat(ASK);
  await eventually(async () => (await refusalsOf(trial.id)).count === 4);
  const { latest } = await refusalsOf(trial.id);
  const text = JSON.stringify(SPOILED);
  expect(latest.toSorted((a, b) => (a.at < b.at ? -1 : 1))[0]).toEqual({
    at: expect.stringMatching(/^20/),
    attempt: 1,
    status: 400,
    code: 'invalid_request',
    request: 'POST /v1/messages',
    item: 'messages.0.content.1.text',
    message: expect.stringContaining('messages.0.content.1.text: '),
    size: text.length,
    digest: expect.stringMatching(/^[0-9a-f]{64}$/),
  });
  expect(latest.map(({ status, code }) => `${status} ${code}`).toSorted()).toEqual([
    '400 invalid_request',
    '400 invalid_request',
    '400 invalid_request',
    '413 request_too_large',
  ]);
  expect(JSON.stringify(latest)).not.toContain('a secret');
  expect(await gateway.metrics()).toMatchObject({
    'trialgate_refused_total{code="invalid_request"}': 3,
    'trialgate_refused_total{code="request_too_large"}': 1,
    'trialgate_refused_total{code="invalid_api_key"}': 1,
  });
  // A call that the engine refused is still a call, so it is not among the refusals.
  gateway.engine.fault = 'bad_request';
  expect((await trial.chat(ASK)).status).toBe(400);
  expect((await refusalsOf(trial.id)).count).toBe(4);
  if (!IN_WORKERD) expect(gateway.log.filter((line) => line.includes('messages.0.content.1.text'))).toHaveLength(1);
});

test('a trial with many refused requests keeps their number and the latest of them, and the gateway logs few lines', async () => {
  const trial = await gateway.trial();
  const replies = await Promise.all(Array.from({ length: 100 }, () => trial.chat('{}')));
  expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([400]));
  await eventually(async () => (await refusalsOf(trial.id)).count === 100);
  expect((await refusalsOf(trial.id)).latest).toHaveLength(MOST_REFUSALS);
  if (!IN_WORKERD) expect(gateway.log.filter((line) => line.includes('was refused')).length).toBeLessThan(10);
});

test('a request to an unknown route is kept as a refusal of the trial that its key proves', async () => {
  const trial = await gateway.trial();
  expect((await gateway.post(`/${trial.id}/v1/embeddings`, trial.key, {})).status).toBe(404);
  expect((await gateway.post('/v1/files', trial.key, {})).status).toBe(404);
  expect((await gateway.post(`/${trial.id}/v1/embeddings`, 'a wrong key', {})).status).toBe(404);
  await eventually(async () => (await refusalsOf(trial.id)).count === 2);
  expect(
    (await refusalsOf(trial.id)).latest.map(({ status, code, request }) => `${status} ${code} ${request}`).toSorted(),
  ).toEqual(['404 not_found POST /v1/embeddings', '404 not_found POST /v1/files']);
  expect(await gateway.metrics()).toMatchObject({ 'trialgate_refused_total{code="not_found"}': 2 });
});

test.skipIf(IN_WORKERD)(
  'a request that the gateway cannot answer now is counted and kept as a refusal of its trial',
  async () => {
    await gateway.restart({ settings: {}, heavyThread: new URL('data:text/javascript,throw new Error("no thread")') });
    const trial = await gateway.trial();
    expect((await trial.chat({ ...ASK, more: 'x'.repeat(200_000) })).status).toBe(503);
    await eventually(async () => (await refusalsOf(trial.id)).count === 1);
    expect((await refusalsOf(trial.id)).latest).toMatchObject([
      { status: 503, code: 'large_requests_unavailable', request: 'POST /v1/chat/completions' },
    ]);
    expect(await gateway.metrics()).toMatchObject({ 'trialgate_refused_total{code="large_requests_unavailable"}': 1 });
  },
);

test.skipIf(IN_WORKERD)('text that an agent sends never breaks a line of the gateway’s log', async () => {
  const trial = await gateway.trial();
  const type = 'x\ntrial other: forged';
  const body = {
    model: 'm',
    max_tokens: 5,
    messages: [{ role: 'user', content: [{ type: 'text', text: 'hi' }, { type }] }],
  };
  expect((await gateway.post(`/${trial.id}/v1/messages`, trial.key, body)).status).toBe(200);
  await trial.chat({ ...ASK, stream_options: { [type]: 1 }, messages: [{ role: 7, content: type }] });
  const lines = gateway.log.filter((line) => line.startsWith(`trial ${trial.id}`));
  expect(lines).toHaveLength(2);
  for (const line of lines) expect(line).not.toContain('\n');
});
