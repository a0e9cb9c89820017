import { expect, test } from 'vitest';
import { eventually } from '../../tests/support/harness/gateways.ts';
import { useTokenGateway } from '../../tests/support/harness/token-gateway.ts';

const context = useTokenGateway({ settings: { maxCallsInFlight: 3, holdMs: 1_000 } });
const ASKED = { model: 'policy', messages: [{ role: 'user', content: 'hi' }] };

type Trial = Awaited<ReturnType<typeof context.trial>>;
const count = ({ baseUrl, key }: Trial, body: unknown = ASKED) =>
  fetch(`${baseUrl}/messages/count_tokens`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
const endOf = async (reply: Response): Promise<unknown> => ({ status: reply.status, ...(await context.json(reply)) });
const failed = (status: number) => ({
  status,
  type: 'error',
  error: expect.objectContaining({ message: expect.stringContaining('engine') }),
});

test('a token count that fails at the engine is reported as the engine’s error', async () => {
  const trial = await context.trial();
  for (const fault of ['cut', 500, 404] as const) {
    context.toy.fault = (path) => (path === '/tokenize' ? fault : null);
    expect(await endOf(await count(trial))).toEqual(failed(502));
  }
  context.toy.fault = () => null;
  expect((await count(trial)).status).toBe(200);
  await context.toy.stop();
  expect(await endOf(await count(trial))).toEqual(failed(503));
});

test('a token count that the engine does not answer times out and no longer counts as an open call', async () => {
  await context.restart({ settings: { maxCallsInFlight: 1, idleMs: 300 } });
  const trial = await context.trial();
  context.toy.route = (_, path) => (path === '/tokenize' ? new Promise(() => {}) : undefined);
  for (const _ of [1, 2]) expect(await endOf(await count(trial))).toEqual(failed(504));
});

test('a trial’s open requests to count tokens are limited, and do not delay another trial’s calls', async () => {
  const [trial, other] = [await context.trial(), await context.trial()];
  const release = Promise.withResolvers<undefined>();
  let asked = 0;
  context.toy.route = (_, path) => (path === '/tokenize' ? ((asked += 1), release.promise) : undefined);
  const held = [count(trial), count(trial), count(trial)];
  await eventually(() => asked === 3);
  expect(await endOf(await count(trial))).toMatchObject({ status: 429, error: { type: 'rate_limit_error' } });
  expect((await other.chat(ASKED)).status).toBe(200);
  release.resolve(undefined);
  expect((await Promise.all(held)).map(({ status }) => status)).toEqual([200, 200, 200]);
  expect((await count(trial)).status).toBe(200);
});
