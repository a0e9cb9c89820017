import { expect, test } from 'vitest';
import { countersOf } from '../../../tests/support/harness/counters-of.ts';
import { ASK, eventually, readStream, useGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useGateway();
/** Enough time for the first tokens, after which the engine is silent. */
const budgets = { seconds: 1.5 };
const STREAM = { ...ASK, stream: true };
const session = async (id: string): Promise<unknown> => (await gateway.admin('GET', `/sessions/${id}`)).json();

test('a stream ends with `length` when its trial’s budget of seconds is used up, and the tokens sampled until then are recorded exactly', async () => {
  gateway.engine.fault = 'hang';
  const trial = await gateway.trial({ budgets });
  const stream = await readStream(await trial.chat({ ...STREAM, stream_options: { include_usage: true } }));
  expect(stream).toMatchObject({
    broken: false,
    done: true,
    finish: { choices: [{ index: 0, finish_reason: 'length' }] },
  });
  expect(stream.chunks.map((chunk) => chunk.choices?.[0]?.delta?.content ?? '').join('')).toBe('Hello 🦀');
  expect(stream.chunks.at(-1)).toMatchObject({
    choices: [],
    usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
  });
  await eventually(() => gateway.engine.last.aborted);
  const [call, ...more] = await trial.calls();
  expect(more).toEqual([]);
  // Its tokens are exact, like those of a reply that a budget of tokens ends.
  expect(call).toMatchObject({
    status: 'completed',
    httpStatus: 200,
    finishReason: 'length',
    untrainable: null,
    reason: expect.stringMatching(/^budget_exhausted: .*1\.5 seconds/),
  });
  expect([call?.promptTokenIds, call?.completionTokenIds, call?.logprobs].map((list) => [...(list ?? [])])).toEqual([
    [1, 9690, 198],
    [61, 8012],
    [-4.25, -2.5],
  ]);
  expect(call?.response).toMatchObject({ choices: [{ message: { content: 'Hello 🦀' }, finish_reason: 'length' }] });
  expect(await session(trial.id)).toMatchObject({ exhausted: 'budget_exhausted', usage: { calls: 1, tokens: 2 } });
  expect((await (await trial.chat(ASK)).json()).choices[0]).toMatchObject({
    message: { content: '' },
    finish_reason: 'length',
  });
  expect(countersOf(await gateway.metrics())).toEqual({
    accepted: 2,
    completed: 1,
    failed: 1,
    cancelled: 0,
    inFlight: 0,
  });
});

test.each([false, true])(
  'a call that has no token yet ends with `length` when its trial’s budget of seconds is used up (stream: %s)',
  async (stream) => {
    await gateway.givePool('run', 'run@1', false);
    const trial = await gateway.trial({ runId: 'run', budgets: { seconds: 0.5 } });
    const reply = await trial.chat({ ...ASK, stream });
    const { choices } = stream ? ((await readStream(reply)).finish ?? {}) : await reply.json();
    expect([reply.status, choices?.[0]?.finish_reason]).toEqual([200, 'length']);
    expect(await trial.calls()).toMatchObject([
      { status: 'failed', reason: expect.stringMatching(/^budget_exhausted/), completionTokenIds: null },
    ]);
    expect(await session(trial.id)).toMatchObject({ exhausted: 'budget_exhausted' });
  },
);

test('the gateway does not wait for the reply to a plain call after its trial’s budget of seconds is used up', async () => {
  gateway.engine.fault = 'hang';
  const trial = await gateway.trial({ budgets: { seconds: 0.5 } });
  expect((await (await trial.chat(ASK)).json()).choices).toMatchObject([
    { message: { role: 'assistant', content: '' }, finish_reason: 'length' },
  ]);
  await eventually(() => gateway.engine.last.aborted);
  expect(countersOf(await gateway.metrics())).toEqual({
    accepted: 1,
    completed: 0,
    failed: 1,
    cancelled: 0,
    inFlight: 0,
  });
});

test.each([
  ['/messages', { max_tokens: 9 }, /"stop_reason":"max_tokens"[^]*message_stop/],
  ['/responses', { input: 'Say hello' }, /response\.incomplete[^]*"reason":"max_output_tokens"/],
])(
  'a stream of %s ends in the form of its protocol when its trial’s budget of seconds is used up',
  async (path, body, end) => {
    gateway.engine.fault = 'hang';
    const trial = await gateway.trial({ budgets });
    const text = await (await gateway.post(`/${trial.id}/v1${path}`, trial.key, { ...STREAM, ...body })).text();
    expect(text).toContain('🦀');
    expect(text).toMatch(end);
  },
);

test('with `budget_end: refuse` an agent gets an error instead of a reply’s end when its trial’s budget of seconds is used up', async () => {
  await gateway.restart({ settings: { budgetEnd: 'refuse' } });
  gateway.engine.fault = 'hang';
  const [plain, streaming] = [await gateway.trial({ budgets }), await gateway.trial({ budgets })];
  const [reply, stream] = await Promise.all([plain.chat(ASK), streaming.chat(STREAM).then(readStream)]);
  expect([reply.status, reply.headers.get('x-should-retry'), (await reply.json()).error.code]).toEqual([
    429,
    'false',
    'budget_exhausted',
  ]);
  expect(stream).toMatchObject({ broken: true, done: false, finish: undefined });
  expect(stream.chunks.at(-1)?.error?.code).toBe('budget_exhausted');
  expect(await streaming.calls()).toMatchObject([{ status: 'failed', httpStatus: 429 }]);
  expect(await session(streaming.id)).toMatchObject({ exhausted: 'budget_exhausted' });
});
