import { expect, test } from 'vitest';
import type { Fault } from '../../tests/support/fakes/fake-engine.ts';
import { ASK, IMPATIENT, readStream, useSharedGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway();
const STREAM = { ...ASK, stream: true };

test.each<[Fault, number, string]>([
  ['status_500', 502, 'engine_error'],
  ['cut', 502, 'engine_cut'],
  ['hang', 504, 'engine_timeout'],
  ['not_json', 502, 'bad_engine_reply'],
  ['bad_request', 400, 'engine_400'],
  ['no_tool_parser', 400, 'engine_400'],
  ['context_too_long', 400, 'context_length_exceeded'],
  ['refuse', 503, 'engine_unavailable'],
])(
  'when the engine fails with `%s`, a plain call gets %i with the code %s and is recorded as failed',
  async (fault, status, code) => {
    if (fault === 'hang' || fault === 'refuse') await gateway.restart({ settings: IMPATIENT });
    gateway.engine.fault = fault;
    const trial = await gateway.trial();
    const reply = await trial.chat(ASK);
    expect(reply.status).toBe(status);
    const { error } = await reply.json();
    expect(error.message).toBeTypeOf('string');
    const [call, ...more] = await trial.calls();
    expect(more).toEqual([]);
    expect(call).toMatchObject({ status: 'failed', httpStatus: status, reason: expect.stringMatching(`^${code}: .`) });
    expect(gateway.log.join('\n')).toContain(code);
  },
);

test.each<[Fault, string]>([
  ['cut', 'engine_cut'],
  ['hang', 'engine_timeout'],
  ['error_event', 'engine_error'],
])(
  'when the engine fails with `%s`, a stream ends with the error %s, and the ids that had come are recorded',
  async (fault, code) => {
    if (fault === 'hang') await gateway.restart({ settings: IMPATIENT });
    gateway.engine.fault = fault;
    const trial = await gateway.trial();
    const stream = await readStream(await trial.chat(STREAM));
    expect(stream).toMatchObject({ broken: true, done: false, finish: undefined });
    expect(stream.chunks.at(-1)?.error).toMatchObject({ code });
    const [call, ...more] = await trial.calls();
    expect(more).toEqual([]);
    expect(call).toMatchObject({ status: 'failed', reason: expect.stringMatching(`^${code}: .`), finishReason: null });
    expect([...(call?.completionTokenIds ?? [])]).toEqual([61, 8012]);
  },
);

test('an engine’s error event whose message is not text reaches the agent as an engine error with the message’s JSON', async () => {
  gateway.engine.fault = 'error_event';
  gateway.engine.lastWords = { toString: 1, valueOf: 2 };
  const trial = await gateway.trial();
  const stream = await readStream(await trial.chat(STREAM));
  expect(stream.chunks.at(-1)?.error).toMatchObject({
    code: 'engine_error',
    message: expect.stringContaining('{"toString":1,"valueOf":2}'),
  });
});

test('a stream that fails before its first chunk gets the HTTP status of its error', async () => {
  gateway.engine.fault = 'not_json';
  const trial = await gateway.trial();
  const reply = await trial.chat(STREAM);
  expect([reply.status, (await reply.json()).error.code]).toEqual([502, 'bad_engine_reply']);
  expect(await trial.calls()).toMatchObject([{ status: 'failed', httpStatus: 502 }]);
});

test.each<Fault>(['cut', 'error_event'])(
  'when the engine fails with `%s`, each of many concurrent streams gets its error event before it is cut',
  async (fault) => {
    gateway.engine.fault = fault;
    const trial = await gateway.trial();
    const streams = await Promise.all(Array.from({ length: 30 }, async () => readStream(await trial.chat(STREAM))));
    expect(streams.filter(({ broken }) => !broken)).toEqual([]);
    expect(streams.filter(({ chunks }) => chunks.at(-1)?.error === undefined)).toEqual([]);
  },
);

test.each<[Fault, boolean, string]>([
  ['no_ids', false, 'no_token_ids'],
  ['no_ids', true, 'no_token_ids'],
  ['wrong_lengths', false, 'length_mismatch'],
  ['wrong_lengths', true, 'length_mismatch'],
  ['miscounted', false, 'length_mismatch'],
  ['miscounted', true, 'length_mismatch'],
])(
  'a call whose engine has the fault `%s` completes and is recorded as untrainable (stream: %s)',
  async (fault, stream, untrainable) => {
    gateway.engine.fault = fault;
    const trial = await gateway.trial();
    const reply = await trial.chat({ ...ASK, stream });
    expect(reply.status).toBe(200);
    await reply.text();
    expect(await trial.calls()).toMatchObject([{ status: 'completed', untrainable }]);
  },
);

test('the agent gets the engine’s own message about a bad request', async () => {
  const trial = await gateway.trial();
  gateway.engine.fault = 'bad_request';
  expect(await (await trial.chat(ASK)).json()).toEqual({
    error: { message: 'top_k must be an integer', type: 'BadRequestError', param: null, code: 400 },
  });
  gateway.engine.fault = 'context_too_long';
  const reply = await trial.chat(STREAM);
  expect(reply.status).toBe(400);
  expect((await reply.json()).error).toMatchObject({ code: 'context_length_exceeded', param: 'input_tokens' });
  const { exhausted } = await (await gateway.admin('GET', `/sessions/${trial.id}`)).json();
  expect(exhausted).toBe('context_length_exceeded');
});

test('a plain call may wait for its reply longer than the idle limit while its engine is alive', async () => {
  await gateway.restart({ settings: { idleMs: 2_000 } });
  gateway.engine.delay = 500;
  const trial = await gateway.trial();
  expect((await trial.chat(ASK)).status).toBe(200);
});

test('the gateway sends keep-alive comments on a stream that waits for its engine', async () => {
  await gateway.restart({ settings: { keepAliveMs: 50 } });
  gateway.engine.delay = 500;
  const trial = await gateway.trial();
  const text = await (await trial.chat(STREAM)).text();
  expect(text.match(/^: keep-alive$/gm)?.length).toBeGreaterThan(2);
  expect(text).toContain('[DONE]');
});

test('a stream of slow but steady tokens is not cut as silent', async () => {
  await gateway.restart({ settings: { idleMs: 2_000 } });
  gateway.engine.delay = 500;
  const trial = await gateway.trial();
  expect(await readStream(await trial.chat(STREAM))).toMatchObject({ done: true, broken: false });
});

test.each([false, true])(
  'a prompt longer than the run allows is refused with `context_length_exceeded` (stream: %s)',
  async (stream) => {
    const trial = await gateway.trial({ budgets: { prompt_tokens: 1 } });
    const reply = await trial.chat({ ...ASK, stream });
    const error = stream ? (await readStream(reply)).chunks.at(0)?.error : (await reply.json()).error;
    expect(error).toMatchObject({ code: 'context_length_exceeded' });
    expect(await trial.calls()).toMatchObject([
      { status: 'failed', reason: expect.stringMatching(/^context_length_exceeded: the prompt has \d+ tokens/) },
    ]);
  },
);
