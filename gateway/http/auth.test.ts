import { expect, test } from 'vitest';
import { attemptKey } from '../../core/keys.ts';
import { completeTrial } from '../../store/queries/complete-trial.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { startGateway } from '../runtimes/node/start-gateway.ts';
import { ASK, readStream, SECRET, useSharedGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway();

async function refusal(reply: Response) {
  expect(reply.headers.get('x-should-retry')).toBe('false');
  return { status: reply.status, code: (await reply.json()).error.code };
}

test('a call with a wrong key, another trial’s key or no key gets 401 and does not reach the engine', async () => {
  const [trial, other] = [await gateway.trial(), await gateway.trial()];
  for (const key of [
    '',
    'wrong',
    other.key,
    trial.key.slice(0, -1),
    `${trial.key}x`,
    trial.key.replace('tg-1', 'tg-2'),
  ]) {
    expect(await refusal(await gateway.chat(trial.id, key, ASK))).toEqual({ status: 401, code: 'invalid_api_key' });
  }
  expect(gateway.engine.seen).toEqual([]);
});

test('a call without the trial’s key gets 401 whether the trial exists or not; a call with the key of a missing trial gets 404', async () => {
  const trial = await gateway.trial();
  expect(await refusal(await gateway.chat('nobody', trial.key, ASK))).toEqual({ status: 401, code: 'invalid_api_key' });
  expect(await refusal(await gateway.chat('nobody', attemptKey(SECRET, 'nobody', 1), ASK))).toEqual({
    status: 404,
    code: 'trial_not_found',
  });
});

test('a call with the key of an earlier attempt gets 409, and one with the key of the new attempt is answered', async () => {
  const first = await gateway.trial();
  const second = await gateway.trial({ trialId: first.id, attempt: 2 });
  expect(await refusal(await first.chat(ASK))).toEqual({ status: 409, code: 'attempt_closed' });
  expect((await second.chat(ASK)).status).toBe(200);
});

test('the gateway refuses calls of a completed or sealed trial with 409', async () => {
  const trial = await gateway.trial();
  await completeTrial(gateway.db, { trialId: trial.id });
  expect(await refusal(await trial.chat(ASK))).toEqual({ status: 409, code: 'attempt_closed' });
  await sealAttempt(gateway.db, { trialId: trial.id, attempt: 1, outcome: 'scored', rewards: { reward: 1 } });
  expect(await refusal(await trial.chat(ASK))).toEqual({ status: 409, code: 'attempt_closed' });
});

test.each([false, true])(
  'a call whose trial is sealed while it runs ends with `attempt_closed` and is not recorded (stream: %s)',
  async (stream) => {
    const trial = await gateway.trial();
    gateway.engine.beforeEnd = async () => {
      await sealAttempt(gateway.db, { trialId: trial.id, attempt: 1, outcome: 'scored', rewards: { reward: 1 } });
    };
    const reply = await trial.chat({ ...ASK, stream });
    if (stream) {
      const { finish, done, broken, chunks } = await readStream(reply);
      expect({ finish, done, broken }).toEqual({ finish: undefined, done: false, broken: true });
      expect(chunks.at(-1)?.error?.code).toBe('attempt_closed');
    } else {
      expect(await refusal(reply)).toEqual({ status: 409, code: 'attempt_closed' });
    }
    expect(await trial.calls()).toEqual([]);
  },
);

test('a request to the session routes without the admin key gets 401', async () => {
  for (const [method, path] of [
    ['POST', '/sessions/a'],
    ['GET', '/sessions/a'],
    ['DELETE', '/sessions/a'],
    ['POST', '/sessions/a/complete'],
  ]) {
    const reply = await fetch(`${gateway.gateway.url}${path}`, { method, headers: { authorization: 'Bearer no' } });
    expect(await refusal(reply)).toEqual({ status: 401, code: 'invalid_api_key' });
  }
});

test('a gateway without an admin key does not start on a public address', async () => {
  const options = {
    host: '0.0.0.0',
    port: 0,
    engines: [],
    databaseUrl: gateway.postgres.url,
    adminKey: null,
    secret: 's',
  };
  await expect(startGateway(options)).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining('--admin-key'),
  });
});

test('a trial’s key names its trial where the URL does not, and a key that was changed to name another trial gets 401', async () => {
  const [trial, other] = [await gateway.trial(), await gateway.trial()];
  const shortKey = `tg-1-${trial.key.slice(-43)}`;
  expect((await gateway.post('/v1/chat/completions', trial.key, ASK)).status).toBe(200);
  expect((await gateway.post(`/v1/chat/completions/${trial.id}`, trial.key, ASK)).status).toBe(200);
  expect((await gateway.chat(trial.id, shortKey, ASK)).status).toBe(200);
  expect(await trial.calls()).toHaveLength(3);
  const renamed = trial.key.replace(
    Buffer.from(trial.id).toString('base64url'),
    Buffer.from(other.id).toString('base64url'),
  );
  for (const key of [
    '',
    'wrong',
    shortKey,
    renamed,
    trial.key.slice(0, -1),
    `${trial.key}x`,
    trial.key.replace('tg-1', 'tg-2'),
  ]) {
    expect(await refusal(await gateway.post('/v1/chat/completions', key, ASK))).toEqual({
      status: 401,
      code: 'invalid_api_key',
    });
  }
  for (const key of ['', 'verl-proxy', renamed])
    expect((await gateway.post(`/v1/chat/completions/${trial.id}`, key, ASK)).status).toBe(401);
  const models = await fetch(`${gateway.gateway.url}/v1/models`, { headers: { authorization: `Bearer ${trial.key}` } });
  expect((await models.json()).data).toHaveLength(1);
  expect(await other.calls()).toEqual([]);
});
