import { request as httpRequest } from 'node:http';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { ADMIN_KEY, ASK, useSharedGateway } from '../../tests/support/harness/gateways.ts';

const MAX_BYTES = 100_000;
const gateway = useSharedGateway({ settings: { maxBodyBytes: MAX_BYTES } });
const BODY = Buffer.from(JSON.stringify(ASK));
const TO_CLAUDE = { model: 'claude', max_tokens: 5, messages: ASK.messages };

type Trial = Awaited<ReturnType<typeof gateway.trial>>;
const encoded = (trial: Trial, coding: string, body: Uint8Array<ArrayBuffer>) =>
  trial.chat(body, {
    headers: { authorization: `Bearer ${trial.key}`, 'content-type': 'application/json', 'content-encoding': coding },
  });

test.each([
  ['gzip', gzipSync(BODY)],
  ['deflate', deflateSync(BODY)],
  ['br', brotliCompressSync(BODY)],
  ['zstd', zstdCompressSync(BODY)],
])('the gateway decodes a request body in %s', async (coding, bytes) => {
  const reply = await encoded(await gateway.trial(), coding, bytes);
  expect(reply.status).toBe(200);
  expect(gateway.engine.last.body.messages).toEqual(ASK.messages);
});

test('a request body that cannot be decoded or is too large after decoding is refused with what to do', async () => {
  const trial = await gateway.trial();
  const refused = async (coding: string, bytes: Uint8Array<ArrayBuffer>) => {
    const reply = await encoded(trial, coding, bytes);
    return [reply.status, (await reply.json()).error.message];
  };
  expect(await refused('gzip', gzipSync(Buffer.alloc(50 * MAX_BYTES, ' ')))).toEqual([
    413,
    expect.stringContaining(`larger than ${MAX_BYTES}`),
  ]);
  expect(await refused('gzip', BODY)).toEqual([400, expect.stringContaining('not gzip')]);
  expect(await refused('compress', BODY)).toEqual([415, expect.stringContaining('as gzip')]);
  expect(gateway.engine.seen).toEqual([]);
});

test('a WebSocket request gets 426, so that its client falls back to HTTP at once', async () => {
  const trial = await gateway.trial();
  const headers = {
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==',
    authorization: `Bearer ${trial.key}`,
  };
  const status = await new Promise((resolve, reject) => {
    const request = httpRequest(`${trial.baseUrl}/responses`, { headers }, (reply) =>
      resolve(reply.resume().statusCode),
    );
    request.on('upgrade', (_, socket) => resolve(socket.destroy()));
    request.on('error', reject).end();
  });
  expect(status).toBe(426);
});

test('clients that add /v1 to the URL twice, leave it out, or end a path with a slash are answered', async () => {
  const trial = await gateway.trial();
  const { url } = gateway.gateway;
  const post = async (path: string, body: unknown) => (await gateway.post(path, trial.key, body)).status;
  for (const base of [`/${trial.id}/v1`, `/${trial.id}/v1/v1`, `/${trial.id}`, '/v1', '/v1/v1']) {
    expect([
      base,
      await post(`${base}/messages`, TO_CLAUDE),
      await post(`${base}/chat/completions`, ASK),
      await post(`${base}/chat/completions/`, ASK),
    ]).toEqual([base, 200, 200, 200]);
    expect((await fetch(`${url}${base}/models`, { headers: { 'x-api-key': trial.key } })).status).toBe(200);
  }
  expect(await trial.calls()).toHaveLength(15);
  const refused = await gateway.post(`/${trial.id}/v1/v1/messages`, trial.key, {});
  expect(await refused.json()).toMatchObject({ type: 'error', error: { type: 'invalid_request_error' } });
});

test('the models route finds a model by its name, and takes any name for the policy unless the gateway is strict', async () => {
  const trial = await gateway.trial();
  const model = (name: string) =>
    fetch(`${trial.baseUrl}/models/${name}`, { headers: { authorization: `Bearer ${trial.key}` } });
  for (const name of ['policy', 'gpt-4o', 'Qwen/Qwen3-8B'])
    expect(await (await model(name)).json()).toMatchObject({
      id: name,
      object: 'model',
      type: 'model',
      created: 7,
      max_model_len: 2048,
    });
  await gateway.restart({ settings: { strictModel: true } });
  expect(
    (
      await fetch(`${gateway.gateway.url}/${trial.id}/v1/models/gpt-4o`, {
        headers: { authorization: `Bearer ${trial.key}` },
      })
    ).status,
  ).toBe(404);
});

test('every reply of the gateway has a request id, which for a call is the call’s id', async () => {
  const trial = await gateway.trial();
  const { url } = gateway.gateway;
  const idOf = ({ headers }: Response) => headers.get('x-request-id');
  for (const stream of [false, true]) {
    const reply = await trial.chat({ ...ASK, stream });
    await reply.text();
    expect(idOf(reply)).toBe((await trial.calls()).at(-1)?.id);
    const message = await gateway.post(`/${trial.id}/v1/messages`, trial.key, { ...TO_CLAUDE, stream });
    await message.text();
    expect(message.headers.get('request-id')).toBe((await trial.calls()).at(-1)?.id);
  }
  gateway.engine.fault = 'bad_request';
  expect(idOf(await trial.chat(ASK))).toBe((await trial.calls()).at(-1)?.id);
  const headers = { authorization: `Bearer ${ADMIN_KEY}` };
  const others = [
    trial.chat({}),
    trial.chat(ASK, { headers: {} }),
    fetch(`${url}/nothing`),
    fetch(`${url}/sessions/${trial.id}`, { headers }),
    fetch(`${url}/health`),
    fetch(`${trial.baseUrl}/models`, { headers: { authorization: `Bearer ${trial.key}` } }),
  ];
  for (const reply of await Promise.all(others))
    expect([reply.url, idOf(reply)]).toEqual([reply.url, expect.stringMatching(/^[0-9a-f-]{36}$/)]);
});
