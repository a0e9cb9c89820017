import { beforeEach, expect, test } from 'vitest';
import { startGateway } from '../../runtimes/node/start-gateway.ts';
import { rawRequest, rawText } from '../../../tests/support/harness/raw-request.ts';
import { ASK, IN_WORKERD, SECRET, useGateway } from '../../../tests/support/harness/gateways.ts';

beforeEach(({ skip }) => skip(IN_WORKERD, 'a Worker has no loopback, and none starts without an admin key'));
const gateway = useGateway({ adminKey: null });
const ask = (host: string, headers: string[] = [], target = '/sessions/own', method = 'POST') =>
  rawRequest(gateway.gateway.url, rawText({ method, target, host, headers }));

test.each(['0.0.0.0', '::', '10.0.0.1', '127.0.0.1.example.com', 'localhost.example.com', ''])(
  'a gateway without an admin key refuses to listen on %s',
  async (host) => {
    const options = { host, port: 0, engines: [], databaseUrl: gateway.postgres.url, adminKey: null, secret: SECRET };
    await expect(startGateway(options)).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringContaining('--admin-key'),
    });
  },
);

test.each(['localhost', 'localhost:8700', '127.0.0.1:8700', '127.9.9.9', '[::1]:8700'])(
  'a gateway without an admin key answers a program on this machine that calls the host %s',
  async (host) => {
    expect((await ask(host)).status).toBe(200);
  },
);

test.each([
  'evil.example',
  'evil.example:8700',
  'localhost.evil.example',
  '127.0.0.1.evil.example',
  '10.0.0.1',
  'localhost@evil.example',
  '',
])(
  'a gateway without an admin key opens no session for another host name, as a web page can send it: %s',
  async (host) => {
    for (const [method, target] of [
      ['POST', '/sessions/own'],
      ['GET', '/sessions'],
      ['GET', '/sessions/export'],
      ['DELETE', '/sessions/own'],
      ['POST', '/sessions/own/complete'],
    ] as const) {
      const { status } = await ask(host, [], target, method);
      expect([method, target, status === 403 || status === 400]).toEqual([method, target, true]);
    }
  },
);

test.each(['https://evil.example', 'null', 'http://localhost.evil.example'])(
  'a gateway without an admin key opens no session for a web page of %s',
  async (origin) => {
    const { status, text } = await ask('localhost', [`Origin: ${origin}`]);
    expect([status, text]).toEqual([403, expect.stringContaining('not_local')]);
  },
);

test('a gateway without an admin key answers its own page, which tries its routes', async () => {
  expect((await ask('localhost:8700', ['Origin: http://localhost:8700'])).status).toBe(200);
});

test('a gateway without an admin key takes a reported reward only with the trial’s key, also under another host name', async () => {
  const trial = await gateway.trial();
  const reward = (key: string) =>
    rawRequest(
      gateway.gateway.url,
      rawText({ method: 'POST', target: `/sessions/${trial.id}/reward`, host: 'gateway', key, body: '{"reward":1}' }),
    );
  expect((await reward('')).status).toBe(401);
  expect((await reward(trial.key)).status).toBe(200);
  expect((await trial.chat(ASK)).status).toBe(200);
});
