import { expect, test } from 'vitest';
import { recordCalls } from '../../../store/queries/record-calls.ts';
import { callRecord } from '../../../tests/support/scenarios/call-record.ts';
import { ASK, useSharedGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway();

test('opening a session’s attempt again returns the same key and keeps the session', async () => {
  const body = {
    run_id: 'run',
    group_id: 'run/0.1/3',
    attempt: 2,
    sampling: { temperature: 0.5 },
    budgets: { calls: 4 },
  };
  const first = await (await gateway.admin('POST', '/sessions/again', body)).json();
  expect(first).toMatchObject({
    session_id: 'again',
    status: 'created',
    attempt: 2,
    base_url: `${gateway.gateway.url}/again/v1`,
  });
  expect(await (await gateway.admin('POST', '/sessions/again', body)).json()).toEqual(first);
  expect(await (await gateway.admin('POST', '/sessions/again')).json()).toEqual(first);
  const lower = await gateway.admin('POST', '/sessions/again', { attempt: 1 });
  expect(lower.status).toBe(409);
  expect(await (await gateway.admin('GET', '/sessions/again')).json()).toMatchObject({
    sampling: { temperature: 0.5 },
    budgets: { calls: 4 },
  });
});

test('a session’s record has every field that verl-recipe’s remote agent loop reads', async () => {
  const { api_key } = await (await gateway.admin('POST', '/sessions/record')).json();
  await gateway.chat('record', api_key, {
    ...ASK,
    temperature: 0.7,
    tools: [{ type: 'function', function: { name: 'f' } }],
  });
  gateway.engine.fault = 'status_500';
  await gateway.chat('record', api_key, ASK);
  const record = await (await gateway.admin('GET', '/sessions/record')).json();
  expect(record).toMatchObject({ session_id: 'record', completed: false, attempt: 1, exhausted: null, outcome: null });
  expect(Math.abs(record.created_at - Date.now() / 1000)).toBeLessThan(60);
  expect(record.turns).toHaveLength(1);
  expect(record.turns[0]).toMatchObject({
    request_messages: ASK.messages,
    completion_text: 'Hello 🦀 world\u0000!',
    completion_token_ids: [61, 8012, 17, 1073, 2],
    completion_logprobs: [-4.25, -2.5, -0.125, -1, -0.5],
    finish_reason: 'stop',
    tool_calls: null,
    prompt_token_ids: [1, 9690, 198],
    tools: [{ type: 'function', function: { name: 'f' } }],
    sampling: { temperature: 0.7 },
    policy_version: null,
    attempt: 1,
    status: 'completed',
    untrainable: null,
  });
  expect(record.unfinished).toMatchObject([{ status: 'failed', http_status: 502, completion_token_ids: [] }]);
});

test('completing a session twice gives the same answer', async () => {
  await gateway.admin('POST', '/sessions/complete');
  for (const _ of [1, 2]) {
    const reply = await gateway.admin('POST', '/sessions/complete/complete');
    expect(await reply.json()).toEqual({ session_id: 'complete', status: 'completed' });
  }
  expect(await (await gateway.admin('GET', '/sessions/complete')).json()).toMatchObject({ completed: true });
});

test('a deleted session is not found, and opening it again begins the next attempt', async () => {
  await gateway.admin('POST', '/sessions/deleted');
  for (const _ of [1, 2]) {
    expect(await (await gateway.admin('DELETE', '/sessions/deleted')).json()).toEqual({
      session_id: 'deleted',
      status: 'deleted',
    });
  }
  const reply = await gateway.admin('GET', '/sessions/deleted');
  expect([reply.status, (await reply.json()).error.code]).toEqual([404, 'session_not_found']);
  expect(await (await gateway.admin('POST', '/sessions/deleted')).json()).toMatchObject({ attempt: 2 });
});

test('the gateway gives a session without an id one, and deletes a list of sessions in one request', async () => {
  const opened = await Promise.all(
    [1, 2, 3].map(async () => (await gateway.admin('POST', '/sessions', { metadata: { suite: 'a' } })).json()),
  );
  const ids = opened.map(({ session_id }) => session_id);
  expect(new Set(ids).size).toBe(3);
  expect((await gateway.chat(ids[0], opened[0].api_key, ASK)).status).toBe(200);
  const gone = [...ids.slice(0, 2), 'an-unknown-session'];
  for (const _ of [1, 2])
    expect(await (await gateway.admin('POST', '/sessions/batch_delete', { session_ids: gone })).json()).toEqual({
      session_ids: gone,
      status: 'deleted',
    });
  expect(await Promise.all(ids.map(async (id) => (await gateway.admin('GET', `/sessions/${id}`)).status))).toEqual([
    404, 404, 200,
  ]);
  expect((await gateway.chat(ids[0], opened[0].api_key, ASK)).status).not.toBe(200);
  for (const bad of [{}, { session_ids: [] }, { session_ids: ['a b'] }, { session_ids: 'a' }])
    expect((await gateway.admin('POST', '/sessions/batch_delete', bad)).status).toBe(400);
});

test.each([
  ['/sessions/bad%20id', {}, /trial id/],
  ['/sessions/x', { runid: 'a' }, /runid/],
  ['/sessions/x', { attempt: -1 }, /attempt/],
  ['/sessions/x', { sampling: { temperature: 'hot' } }, /sampling\.temperature/],
  ['/sessions/x', { budgets: { calls: 0 } }, /budgets\.calls/],
  ['/sessions/x', { sampling: { stop: ['\0'] } }, /cannot be stored/],
  ['/sessions/x', { sampling: { chat_template_kwargs: { a: [{ b: 'x\0' }] } } }, /cannot be stored/],
])('a bad request to open a session gets 400 with the name of what is wrong: %s %j', async (path, body, message) => {
  const reply = await gateway.admin('POST', path, body);
  expect(reply.status).toBe(400);
  expect((await reply.json()).error.message).toMatch(message);
});

test('a trial’s id may have slashes, colons and at signs, percent-encoded in paths', async () => {
  const id = 'django/django@4.2:test-1';
  const path = `/sessions/${encodeURIComponent(id)}`;
  const metadata = { suite: 'django', seed: 7 };
  const opened = await (await gateway.admin('POST', path, { metadata })).json();
  expect(opened).toMatchObject({
    session_id: id,
    base_url: expect.stringContaining('/django%2Fdjango%404.2%3Atest-1/v1'),
  });
  const paths = [opened.base_url, `${gateway.gateway.url}/v1`, `${gateway.gateway.url}/${encodeURIComponent(id)}`].map(
    (base) => `${base}/chat/completions`,
  );
  for (const url of [...paths, `${gateway.gateway.url}/v1/chat/completions/${encodeURIComponent(id)}`]) {
    const reply = await fetch(url, {
      method: 'POST',
      headers: { authorization: `Bearer ${opened.api_key}` },
      body: JSON.stringify(ASK),
    });
    expect([url, reply.status]).toEqual([url, 200]);
  }
  const record = await (await gateway.admin('GET', path)).json();
  expect([record.turns.length, record.metadata]).toEqual([4, metadata]);
  for (const spoiled of [{ metadata: { x: 'y'.repeat(20_000) } }, { metadata: { x: '\u0000' } }])
    expect((await gateway.admin('POST', path, spoiled)).status).toBe(400);
  expect((await gateway.admin('POST', `${path}/complete`)).status).toBe(200);
  expect((await gateway.admin('GET', `/sessions?cursor=${encodeURIComponent(id)}`)).status).toBe(200);
  expect((await gateway.admin('DELETE', path)).status).toBe(200);
});

test('a session’s record can be limited by time (`since`) and number (`limit`)', async () => {
  const { api_key } = await (await gateway.admin('POST', '/sessions/parts')).json();
  for (let i = 0; i < 4; i++) await (await gateway.chat('parts', api_key, ASK)).text();
  const read = async (query: string): Promise<{ call_id: string; ended_at: number }[]> =>
    (await (await gateway.admin('GET', `/sessions/parts${query}`)).json()).turns;
  const all = await read('');
  const [, second] = all;
  expect(await read('?limit=2')).toEqual(all.slice(0, 2));
  expect(await read(`?since=${second?.ended_at}`)).toEqual(
    all.filter(({ ended_at }) => ended_at > (second?.ended_at ?? 0)),
  );
  expect((await read(`?since=${second?.ended_at}&limit=1`)).length).toBeLessThan(2);
  expect((await gateway.admin('GET', '/sessions/parts?since=yesterday')).status).toBe(400);
});

test('a client that reads a session’s calls from the last one that it has on misses none, whatever order calls end in', async () => {
  await gateway.admin('POST', '/sessions/polled');
  const record = async (endedAt: number, choices = 1) => {
    const call = callRecord({ trialId: 'polled', endedAt: new Date(endedAt) });
    const [first] = call.choices;
    const more = Array.from({ length: choices - 1 }, () => ({ ...first, id: crypto.randomUUID() }));
    expect(await recordCalls(gateway.db, [{ ...call, choices: [first, ...more] }])).toEqual(new Set());
  };
  const read = async (query: string): Promise<{ turns: unknown[]; next: number }> =>
    (await gateway.admin('GET', `/sessions/polled${query}`)).json();
  expect(await read('')).toMatchObject({ turns: [], next: 0 });
  await record(10_001);
  const first = await read('?after=0');
  await record(10_000);
  await record(10_002, 3);
  const second = await read(`?after=${first.next}&limit=1`);
  const third = await read(`?after=${second.next}&limit=1`);
  expect([first, second, third].map(({ turns }) => turns.length)).toEqual([1, 1, 3]);
  expect(await read(`?after=${third.next}`)).toMatchObject({ turns: [], next: third.next });
});
