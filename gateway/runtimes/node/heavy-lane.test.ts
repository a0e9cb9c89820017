import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { request } from 'node:http';
import { getPriority } from 'node:os';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import {
  ADMIN_KEY,
  ASK,
  eventually,
  IN_WORKERD,
  readStream,
  useGateway,
} from '../../../tests/support/harness/gateways.ts';
import { hangUpWhileCommitting } from '../../../tests/support/fakes/lost-replies.ts';
import { rawRequest } from '../../../tests/support/harness/raw-request.ts';
import { LaneEnd } from './lane-end.ts';

const gateway = useGateway();
const words = (bytes: number): string => 'word '.repeat(bytes / 5);
const heavy = (more: object = {}, bytes = 400 * 1024) => ({
  ...ASK,
  ...more,
  messages: [{ role: 'user', content: words(bytes) }],
});
const withManyNodes = (more: object = {}) => ({ ...ASK, ...more, metadata: Array(6_000).fill({}) });

test.each([
  ['large', heavy()],
  ['of many values', withManyNodes()],
])('a request that is %s is answered, streamed, recorded and continued like any other', async (_what, body) => {
  // Other tests start the thread from a bundle. This one uses the file that is shipped.
  await gateway.restart({ heavyThread: new URL('./heavy-thread-main.ts', import.meta.url) });
  const trial = await gateway.trial();
  const whole = await trial.chat(body);
  expect([whole.status, whole.headers.get('x-trialgate-call'), whole.headers.get('content-type')]).toEqual([
    200,
    expect.stringMatching(/^[0-9a-f-]{36}$/),
    expect.stringContaining('application/json'),
  ]);
  const { message } = (await whole.json()).choices[0];
  expect(await readStream(await trial.chat({ ...body, stream: true }))).toMatchObject({ done: true, broken: false });
  expect(
    (await trial.chat({ ...ASK, messages: [...body.messages, message, { role: 'user', content: 'more' }] })).status,
  ).toBe(200);
  const calls = await trial.calls();
  expect(calls.map(({ status, continuation, requestBytes }) => [status, continuation !== null, requestBytes])).toEqual([
    ['completed', false, JSON.stringify(body).length],
    ['completed', true, JSON.stringify({ ...body, stream: true }).length],
    ['completed', true, expect.any(Number)],
  ]);
  expect(calls[0]?.request).toEqual(body);
  expect(
    createHash('sha256')
      .update(JSON.stringify(body))
      .digest()
      .equals(Buffer.from(calls[0]?.digest ?? [])),
  ).toBe(true);
  expect(await gateway.metrics()).toMatchObject({
    trialgate_calls_accepted_total: 3,
    'trialgate_calls_total{status="completed"}': 3,
    trialgate_calls_in_flight: 0,
  });
});

test('a request body without a length and a compressed one are answered', async () => {
  const trial = await gateway.trial();
  const stream = new Blob([JSON.stringify(ASK)]).stream();
  const headers = { authorization: `Bearer ${trial.key}`, 'content-type': 'application/json' };
  expect((await trial.chat(ASK, { body: stream, duplex: 'half', headers } as RequestInit)).status).toBe(200);
  expect(
    (await trial.chat(gzipSync(JSON.stringify(heavy())), { headers: { ...headers, 'content-encoding': 'gzip' } }))
      .status,
  ).toBe(200);
  expect((await trial.calls()).map(({ status }) => status)).toEqual(['completed', 'completed']);
});

test('a large request with a wrong key is refused before its body has arrived', async () => {
  const trial = await gateway.trial();
  const { url } = gateway.gateway;
  const status = await new Promise((resolve, reject) => {
    const asking = request(
      `${url}/${trial.id}/v1/chat/completions`,
      { method: 'POST', headers: { authorization: 'Bearer no', 'content-length': 20 * 2 ** 20 } },
      (reply) => resolve(reply.statusCode),
    );
    asking.on('error', reject);
    asking.write('{');
  });
  expect(status).toBe(401);
});

test('a request that announces more bytes than the gateway accepts gets 413, and its trial keeps the refusal', async () => {
  const trial = await gateway.trial();
  const refuse = () =>
    new Promise((resolve, reject) => {
      const headers = { authorization: `Bearer ${trial.key}`, 'content-length': 2 ** 40 };
      const asking = request(
        `${gateway.gateway.url}/${trial.id}/v1/chat/completions`,
        { method: 'POST', headers },
        (reply) => resolve(reply.statusCode),
      );
      asking.on('error', reject);
      asking.write('{');
    });
  expect([await refuse(), await refuse()]).toEqual([413, 413]);
  const refusals = async () => (await (await gateway.admin('GET', `/sessions/${trial.id}`)).json()).refusals;
  await eventually(async () => (await refusals()).count === 2);
  expect(await refusals()).toMatchObject({ latest: [{ code: 'request_too_large' }, { code: 'request_too_large' }] });
});

test('an agent’s hang-up cancels its large call, and the stream of a large call is cut when its engine fails', async () => {
  const trial = await gateway.trial();
  gateway.engine.fault = 'hang';
  const leaving = new AbortController();
  const left = trial.chat(heavy({ stream: true }), { signal: leaving.signal }).then((reply) => reply.text());
  await eventually(() => gateway.engine.seen.length === 1);
  leaving.abort();
  await expect(left).rejects.toThrow();
  await eventually(async () => (await trial.calls())[0]?.status === 'cancelled');
  gateway.engine.fault = 'cut';
  expect(await readStream(await trial.chat(heavy({ stream: true })))).toMatchObject({
    done: false,
    broken: true,
    text: expect.stringContaining('engine_cut'),
  });
});

test('small calls are answered while the gateway still parses a large call that came before them', async ({ skip }) => {
  skip(IN_WORKERD, 'a Worker has one thread for each isolate');
  const [trial, other] = [await gateway.trial(), await gateway.trial()];
  await (await trial.chat(heavy())).text();
  // Parsing and refusing this one takes seconds.
  const body = `{"messages":[${Array(160_000).fill('{}').join()}]}`;
  const large = trial.chat(body).then(async (reply) => [reply.status, (await reply.text()).slice(0, 200)]);
  const isOver = large.then(() => true);
  let answered = 0;
  for (;;) {
    const small = other.chat(ASK).then(({ status }) => status);
    if ((await Promise.race([isOver, small])) === true) break;
    expect(await small).toBe(200);
    answered += 1;
  }
  expect(await large).toEqual([400, expect.stringContaining('messages')]);
  expect(answered).toBeGreaterThanOrEqual(3);
});

test('after a large request, every thread of the gateway’s process but the first has a lower priority', async ({
  skip,
}) => {
  skip(
    IN_WORKERD || process.platform !== 'linux',
    'a Worker has one thread for each isolate, and only Linux has a priority for each thread',
  );
  const trial = await gateway.trial();
  expect(
    (
      await trial.chat(gzipSync(JSON.stringify(heavy())), {
        headers: { authorization: `Bearer ${trial.key}`, 'content-encoding': 'gzip' },
      })
    ).status,
  ).toBe(200);
  const others = readdirSync('/proc/self/task')
    .map(Number)
    .filter((thread) => thread !== process.pid);
  expect(others.length).toBeGreaterThan(1);
  expect(new Set(others.map((thread) => getPriority(thread)))).toEqual(new Set([Math.min(19, getPriority() + 10)]));
});

test('a gateway that closes lets a large call under way end', async ({ skip }) => {
  skip(IN_WORKERD, 'a Worker is not closed');
  const trial = await gateway.trial();
  const released = Promise.withResolvers<void>();
  gateway.engine.beforeEnd = () => released.promise;
  const large = trial.chat(heavy());
  await eventually(() => gateway.engine.seen.length === 1);
  const closing = gateway.gateway.close();
  released.resolve();
  expect((await large).status).toBe(200);
  await closing;
  await gateway.start();
});

test('when the heavy thread dies, large requests get 503 and other calls are answered', async ({ skip }) => {
  skip(IN_WORKERD, 'a Worker has one thread for each isolate');
  await gateway.restart({ heavyThread: new URL('data:text/javascript,throw new Error("out of memory")') });
  const trial = await gateway.trial();
  const reply = await trial.chat(heavy());
  expect([reply.status, reply.headers.get('retry-after'), (await reply.json()).error.code]).toEqual([
    503,
    '2',
    'large_requests_unavailable',
  ]);
  expect((await trial.chat(ASK)).status).toBe(200);
  expect(gateway.log.join()).toContain('out of memory');
});

test('a large request whose agent hung up while the heavy thread was starting is not handed over to it', async ({
  skip,
}) => {
  skip(IN_WORKERD, 'a Worker has one thread for each isolate');
  const slow = `import { createServer } from 'node:http'; import { parentPort } from 'node:worker_threads';
    const server = createServer((request, reply) => { parentPort.postMessage({ log: 'was asked' }); reply.end(); });
    parentPort.postMessage({ log: 'is starting' });
    server.listen(0, '127.0.0.1', () => setTimeout(() => parentPort.postMessage({ port: server.address().port }), 500));
    parentPort.on('message', ({ close }) => close && process.exit());`;
  await gateway.restart({ heavyThread: new URL(`data:text/javascript,${encodeURIComponent(slow)}`) });
  const trial = await gateway.trial();
  const leaving = new AbortController();
  const left = trial.chat(withManyNodes(), { signal: leaving.signal });
  await eventually(() => gateway.log.includes('is starting'));
  const stays = trial.chat(withManyNodes());
  leaving.abort();
  await expect(left).rejects.toThrow();
  expect((await stays).status).toBe(200);
  expect(gateway.log.filter((line) => line === 'was asked')).toHaveLength(1);
});

test('a request without a body does not start the heavy thread', async ({ skip }) => {
  skip(IN_WORKERD, 'a Worker has one thread for each isolate');
  await gateway.restart({ heavyThread: new URL('data:text/javascript,throw new Error("it was started")') });
  // curl -X POST sends neither a body nor its length.
  const { status } = await rawRequest(
    gateway.gateway.url,
    `POST /sessions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${ADMIN_KEY}\r\nconnection: close\r\n\r\n`,
  );
  expect(status).toBe(200);
  expect(gateway.log.join()).not.toContain('it was started');
});

test('the heavy thread answers only requests that its own process hands over', async ({ skip }) => {
  skip(IN_WORKERD, 'a Worker has one thread for each isolate');
  const trial = await gateway.trial();
  await gateway.restart({ lane: new LaneEnd('known-to-the-other-thread') });
  expect((await trial.chat(ASK)).status).toBe(404);
  const headers = { authorization: `Bearer ${trial.key}`, 'x-trialgate-lane': 'known-to-the-other-thread 1' };
  expect((await trial.chat(ASK, { headers })).status).toBe(200);
});

test('a client’s retry of a large request gets the undelivered reply, and its retry after a delivered reply is a new call', async () => {
  const trial = await gateway.trial();
  const body = heavy();
  const ask = (count: number, signal?: AbortSignal) =>
    trial.chat(body, {
      headers: {
        authorization: `Bearer ${trial.key}`,
        'content-type': 'application/json',
        'x-stainless-retry-count': `${count}`,
      },
      ...(signal ? { signal } : {}),
    });
  const isReplay = async (reply: Promise<Response>) => [
    (await (await reply).text()).includes('Hello'),
    (await reply).headers.get('x-trialgate-replay') === 'true',
  ];
  await hangUpWhileCommitting(gateway.db, (signal) => ask(0, signal));
  expect(await isReplay(ask(1))).toEqual([true, true]);
  expect(await isReplay(ask(2))).toEqual([true, false]);
  expect(await isReplay(ask(3))).toEqual([true, false]);
  expect(await trial.calls()).toHaveLength(3);
});

test('a trial whose open calls hold many JSON values gets 429 for one more, and another trial is answered', async () => {
  await gateway.restart({ settings: { maxBodyBytesInFlight: 4 * 2 ** 20 } });
  const [trial, other] = [await gateway.trial(), await gateway.trial()];
  const released = Promise.withResolvers<void>();
  gateway.engine.beforeEnd = () => released.promise;
  const first = trial.chat(withManyNodes());
  await eventually(() => gateway.engine.seen.length === 1);
  const refused = await trial.chat(withManyNodes());
  expect([refused.status, refused.headers.get('retry-after'), (await refused.json()).error.code]).toEqual([
    429,
    '2',
    'too_many_bytes_in_flight',
  ]);
  released.resolve();
  expect((await first).status).toBe(200);
  expect([(await other.chat(withManyNodes())).status, (await trial.chat(withManyNodes())).status]).toEqual([200, 200]);
});
