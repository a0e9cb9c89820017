import { expect, test } from 'vitest';
import OpenAI from 'openai';
import { eq } from 'drizzle-orm';
import { calls } from '../../../store/schema.ts';
import { ADMIN_KEY, ASK, useSharedGateway } from '../../../tests/support/harness/gateways.ts';
import { VerlClient } from '../../../tests/support/harness/verl-client.ts';

const gateway = useSharedGateway({ settings: { compat: 'verl' } });
const verl = (): VerlClient => new VerlClient(gateway.gateway.url);
const ask = (id: string, key = 'verl-proxy') => gateway.chat(id, key, ASK);

test('the client of verl-recipe PR 83 takes a session from its registration to its deletion', async () => {
  const client = verl();
  expect(await client.register('led-3Qx')).toMatchObject({ session_id: 'led-3Qx', status: 'created' });
  const openai = new OpenAI({ apiKey: 'verl-proxy', baseURL: `${gateway.gateway.url}/led-3Qx/v1`, maxRetries: 0 });
  const messages = [{ role: 'user' as const, content: 'Say hello' }];
  await openai.chat.completions.create({ model: 'm', messages });
  for await (const _ of await openai.chat.completions.create({ model: 'm', messages, stream: true }));
  expect((await gateway.post('/v1/chat/completions/led-3Qx', '', ASK)).status).toBe(200);
  expect(await client.complete('led-3Qx')).toEqual({ session_id: 'led-3Qx', status: 'completed' });
  const session = await client.get('led-3Qx');
  expect(session).toMatchObject({ session_id: 'led-3Qx', completed: true });
  expect(session?.turns).toHaveLength(3);
  for (const turn of session?.turns ?? []) {
    expect(turn).toMatchObject({
      request_messages: messages,
      completion_text: 'Hello 🦀 world\u0000!',
      finish_reason: 'stop',
      tool_calls: null,
    });
    expect(turn.completion_token_ids).toHaveLength(turn.completion_logprobs.length);
  }
  expect(await client.delete('led-3Qx')).toEqual({ session_id: 'led-3Qx', status: 'deleted' });
  expect(await client.get('led-3Qx')).toBeNull();
  expect((await ask('led-3Qx')).status).toBe(404);
});

test('with `--compat verl`, registering a session again keeps one without calls and opens a new attempt for one with calls', async () => {
  const client = verl();
  expect(await client.register('again')).toMatchObject({ attempt: 1 });
  expect(await client.register('again')).toMatchObject({ attempt: 1 });
  await ask('again');
  expect(await client.register('again')).toMatchObject({ attempt: 2 });
  expect(await client.get('again')).toMatchObject({ turns: [], completed: false });
  await client.complete('again');
  expect(await client.register('again')).toMatchObject({ attempt: 3 });
  await client.delete('again');
  expect(await client.register('again')).toMatchObject({ attempt: 4 });
  expect((await ask('again')).status).toBe(200);
});

test('with `--compat verl`, a call that began before its session was deleted gets 409 and is not in the next attempt’s record', async () => {
  const client = verl();
  await client.register('late');
  gateway.engine.beforeEnd = async () => {
    gateway.engine.beforeEnd = () => {};
    await client.delete('late');
    await client.register('late');
  };
  expect((await ask('late')).status).toBe(409);
  expect(await client.get('late')).toMatchObject({ turns: [] });
});

test('with `--compat verl`, a session that was never registered can be completed and deleted, and reading it finds nothing', async () => {
  const client = verl();
  expect(await client.complete('never')).toEqual({ session_id: 'never', status: 'completed' });
  expect(await client.delete('never')).toEqual({ session_id: 'never', status: 'deleted' });
  expect(await client.get('never')).toBeNull();
});

test('with `--compat verl`, a client without a key cannot reach a run’s trial, a list or a reward, and one with a wrong key gets 401', async () => {
  const trial = await gateway.trial({ runId: 'run' });
  const other = await gateway.trial();
  const send = async (method: string, path: string, init: RequestInit = {}) =>
    (await fetch(`${gateway.gateway.url}${path}`, { method, ...init })).status;
  const routes = [
    ['POST', ''],
    ['GET', ''],
    ['POST', '/complete'],
    ['DELETE', ''],
  ] as const;
  for (const [method, end] of routes)
    expect([method, end, await send(method, `/sessions/${trial.id}${end}`)]).toEqual([method, end, 401]);
  await gateway.admin('DELETE', `/sessions/${trial.id}`);
  expect(await send('POST', `/sessions/${trial.id}`)).toBe(401);
  for (const path of ['', '/export', `/${other.id}/samples`])
    expect([path, await send('GET', `/sessions${path}`)]).toEqual([path, 401]);
  expect(await send('POST', `/sessions/${other.id}/reward`, { body: '{"reward":1}' })).toBe(401);
  expect(await send('POST', '/sessions/new', { body: '{"run_id":"run"}' })).toBe(401);
  expect(await send('GET', `/sessions/${other.id}`, { headers: { authorization: 'Bearer wrong' } })).toBe(401);
});

test('with `--compat verl`, a call of a run’s trial needs the trial’s key, and a call with the key of an old attempt gets 409', async () => {
  const ofRun = await gateway.trial({ runId: 'run' });
  expect((await ask(ofRun.id)).status).toBe(401);
  const first = await gateway.trial();
  await gateway.trial({ trialId: first.id, attempt: 2 });
  expect((await ask(first.id, first.key)).status).toBe(409);
  expect((await ask(first.id, first.key.replace('tg-1', 'tg-2'))).status).toBe(401);
});

test('with `--compat verl`, opening a session with the admin key and no body opens the same attempt again and keeps its calls', async () => {
  const trial = await gateway.trial();
  await ask(trial.id);
  const reply = await fetch(`${gateway.gateway.url}/sessions/${trial.id}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${ADMIN_KEY}` },
  });
  expect(await reply.json()).toMatchObject({ attempt: 1, api_key: trial.key });
  expect(await gateway.db.$count(calls, eq(calls.trialId, trial.id))).toBe(1);
});
