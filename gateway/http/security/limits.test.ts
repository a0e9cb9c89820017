import { expect, test } from 'vitest';
import { rawRequest, rawText } from '../../../tests/support/harness/raw-request.ts';
import { ASK, eventually, IN_WORKERD, readStream, useSharedGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway({ settings: { maxCallsInFlight: 3 }, headersTimeoutMs: 300 });

test('the number of a trial’s open calls is limited, other trials are answered meanwhile, and each call that ends makes room for one', async () => {
  const [trial, other] = [await gateway.trial(), await gateway.trial()];
  const end = Promise.withResolvers<void>();
  gateway.engine.beforeEnd = () => end.promise;
  const held = [trial.chat({ ...ASK, stream: true }), trial.chat(ASK), trial.chat({ ...ASK, stream: true })];
  await eventually(() => gateway.engine.seen.length === 3);
  const refused = await trial.chat(ASK);
  expect([refused.status, refused.headers.get('retry-after'), refused.headers.get('x-should-retry')]).toEqual([
    429,
    '1',
    null,
  ]);
  expect((await refused.json()).error).toMatchObject({ code: 'too_many_calls', message: expect.stringContaining('3') });
  const others = other.chat(ASK);
  await eventually(() => gateway.engine.seen.length === 4);
  end.resolve();
  for (const reply of await Promise.all(held)) await reply.text();
  expect((await others).status).toBe(200);
  for (const bad of ['not json', { ...ASK, n: 0 }, ASK, { ...ASK, stream: true }, ASK, ASK])
    await (await trial.chat(bad)).text();
  expect((await readStream(await trial.chat({ ...ASK, stream: true }))).done).toBe(true);
});

test('a call whose agent hangs up no longer counts as an open call of its trial', async () => {
  const trial = await gateway.trial();
  gateway.engine.delay = 100;
  for (let i = 0; i < 5; i++) {
    const leaving = new AbortController();
    const left = trial.chat({ ...ASK, stream: i % 2 === 0 }, { signal: leaving.signal });
    await eventually(() => gateway.engine.seen.length === i + 1);
    leaving.abort();
    await left.then((reply) => reply.text()).catch(() => {});
    await eventually(async () => (await gateway.metrics()).trialgate_calls_in_flight === 0);
  }
  gateway.engine.delay = 0;
  expect((await trial.chat(ASK)).status).toBe(200);
});

test('request headers beyond the limit get 431 with a reason', async ({ skip }) => {
  skip(IN_WORKERD, 'what is before a Worker reads its headers');
  const trial = await gateway.trial();
  const headers = Array.from({ length: 40 }, (_, i) => `X-${i}: ${'x'.repeat(1000)}`);
  const { status, text } = await rawRequest(
    gateway.gateway.url,
    rawText({ method: 'POST', target: `/${trial.id}/v1/chat/completions`, key: trial.key, headers, body: '{}' }),
  );
  expect(status).toBe(431);
  expect(JSON.parse(text.slice(text.indexOf('\r\n\r\n')))).toMatchObject({ error: { code: 'headers_too_large' } });
});

test('a connection whose request headers do not end gets 408', async ({ skip }) => {
  skip(IN_WORKERD, 'what is before a Worker reads its headers');
  expect((await rawRequest(gateway.gateway.url, 'GET /health HTTP/1.1\r\nHost: a\r\n')).status).toBe(408);
});

test.each([
  'GET\r\n\r\n',
  '\u0000\u0001\r\n\r\n',
  'GET /health HTTP/9.9\r\n\r\n',
  'GET /health HTTP/1.1\r\nHost: a\r\nBad Header: x\r\n\r\n',
  `GET /health HTTP/1.1\r\nConnection: close\r\n\r\n`,
])('bytes that are not an HTTP request get 400, and the gateway goes on answering: %j', async (bytes) => {
  expect((await rawRequest(gateway.gateway.url, bytes)).status).toBe(400);
  expect((await fetch(`${gateway.gateway.url}/health`)).status).toBe(200);
});

test('a request with a wrong key gets 401 before its body has arrived', async () => {
  const trial = await gateway.trial();
  const head = `POST /${trial.id}/v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 60000000\r\nAuthorization: Bearer no\r\n\r\n{`;
  expect((await rawRequest(gateway.gateway.url, head)).status).toBe(401);
});
