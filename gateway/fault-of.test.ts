import { expect, test } from 'vitest';
import { FakeEngine, type Fault as EngineFault } from '../tests/support/fakes/fake-engine.ts';
import { TokenEngine } from '../tests/support/fakes/token-engine.ts';
import { ASK, eventually, IMPATIENT, readStream, useGateway } from '../tests/support/harness/gateways.ts';

const gateway = useGateway({ settings: IMPATIENT });

test.each<[EngineFault, string]>([
  ['none', 'none'],
  ['bad_request', 'request'],
  ['context_too_long', 'request'],
  ['no_tool_parser', 'engine'],
  ['status_500', 'request'],
  ['dead', 'engine'],
  ['status_503', 'engine'],
  ['cut', 'engine'],
  ['hang', 'engine'],
  ['not_json', 'engine'],
  ['refuse', 'engine'],
])('a call whose engine has the fault `%s` is recorded as caused by `%s`', async (fault, expected) => {
  gateway.engine.fault = fault;
  for (const stream of [false, true]) {
    const trial = await gateway.trial();
    await (await trial.chat({ ...ASK, stream })).text().catch(() => {});
    expect(await trial.calls()).toMatchObject([{ fault: expected === 'none' ? null : expected }]);
    // The gateway does not use an engine for a moment after it refused.
    await new Promise((resolve) => setTimeout(resolve, fault === 'refuse' ? 600 : 0));
  }
});

test('an engine’s status 501 is recorded as the request’s fault, and its status 401 as the engine’s', async () => {
  const engine = await new TokenEngine().start();
  try {
    await gateway.restart({ engines: [engine.url] });
    const trial = await gateway.trial();
    for (const status of [501, 401]) {
      engine.fault = () => status;
      expect((await trial.chat(ASK)).status).toBe(502);
    }
    expect((await trial.calls()).map(({ fault }) => fault)).toEqual(['request', 'engine']);
  } finally {
    await engine.stop();
  }
});

test('an error in the middle of a stream is recorded as the request’s fault if the engine stays healthy, and as the engine’s if not', async () => {
  gateway.engine.fault = 'error_event';
  const trial = await gateway.trial();
  await readStream(await trial.chat({ ...ASK, stream: true }));
  gateway.engine.delay = 50;
  const stream = trial.chat({ ...ASK, stream: true }).then(readStream);
  await eventually(() => gateway.engine.seen.length === 2);
  gateway.engine.isHealthy = false;
  await stream;
  expect((await trial.calls()).map(({ fault }) => fault)).toEqual(['request', 'engine']);
});

test('when an engine is silent to one request and answers others, the silence is recorded as that request’s fault', async () => {
  await gateway.restart({ settings: { ...IMPATIENT, idleMs: 1_000 } });
  gateway.engine.fault = 'hang';
  const [silent, other] = [await gateway.trial(), await gateway.trial()];
  const over = new AbortController();
  const stream = silent
    .chat({ ...ASK, stream: true })
    .then(readStream)
    .finally(() => over.abort());
  await eventually(() => gateway.engine.seen.length === 1);
  gateway.engine.fault = 'none';
  while (!over.signal.aborted) expect((await other.chat(ASK)).status).toBe(200);
  expect(await stream).toMatchObject({ broken: true });
  expect(await silent.calls()).toMatchObject([
    { status: 'failed', reason: expect.stringMatching(/^engine_timeout/), fault: 'request' },
  ]);
});

test('when one engine fails and another answers, the call completes and is recorded without a fault', async () => {
  const other = await new FakeEngine().start();
  try {
    await gateway.restart({ engines: [gateway.engine.url, other.url] });
    gateway.engine.fault = 'status_500';
    const trials = await Promise.all(Array.from({ length: 6 }, () => gateway.trial()));
    for (const trial of trials) expect((await trial.chat(ASK)).status).toBe(200);
    for (const trial of trials) expect(await trial.calls()).toMatchObject([{ status: 'completed', fault: null }]);
    other.fault = 'status_500';
    const [trial] = trials;
    expect((await trial?.chat(ASK))?.status).toBe(502);
    expect(await trial?.calls()).toMatchObject([{}, { status: 'failed', fault: 'request' }]);
  } finally {
    await other.stop();
  }
});

test('an agent’s hang-up is recorded with the fault `client`, and a used-up budget with the fault `request`', async () => {
  gateway.engine.delay = 50;
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  const agent = new AbortController();
  const left = trial.chat(ASK, { signal: agent.signal }).catch(() => {});
  await eventually(() => gateway.engine.seen.length === 1);
  agent.abort();
  await left;
  await eventually(async () => (await trial.calls()).length === 1);
  await (await trial.chat(ASK)).text();
  await (await trial.chat(ASK)).text();
  const calls = await trial.calls();
  expect(calls.map(({ fault }) => fault)).toContain('client');
  expect(calls.find(({ reason }) => reason?.startsWith('budget_exhausted'))).toMatchObject({ fault: 'request' });
});
