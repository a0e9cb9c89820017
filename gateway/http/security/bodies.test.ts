import { createHash } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { ASK, useSharedGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway({ settings: { maxBodyNodes: 100_000 } });

const around = (field: string): string => `{"messages":[{"role":"user","content":"hi"}],${field}}`;
const HEAVY = {
  'a list that the protocol does not know': around(`"x":[${Array(60_000).fill('{}').join()}]`),
  'many keys': around(`"metadata":{${Array.from({ length: 60_000 }, (_, i) => `"k${i}":1`).join()}}`),
  'many messages': `{"messages":[${Array(60_000).fill('{}').join()}]}`,
  'a prompt of many numbers': `{"prompt":[${Array(120_000).fill('1').join()}]}`,
};

test.each(Object.entries(HEAVY))(
  'a request body with %s is refused before it is parsed, and its trial’s next call is answered',
  async (_what, body) => {
    const trial = await gateway.trial();
    const reply = await trial.chat(body);
    expect([reply.status, (await reply.json()).error]).toEqual([
      413,
      expect.objectContaining({
        code: 'request_too_complex',
        message: expect.stringMatching(/100000 .*max_body_nodes/),
      }),
    ]);
    expect(gateway.engine.seen).toEqual([]);
    expect(await trial.calls()).toEqual([]);
    expect((await trial.chat(ASK)).status).toBe(200);
  },
);

test('a list in a field that the protocol does not know is stored as one value and read back as it was sent', async () => {
  const trial = await gateway.trial();
  const x = Array.from({ length: 100 }, (_, i) => ({ __proto__: null, i, list: [{ a: null }], '': '' }));
  const body = JSON.parse(around(`"x":${JSON.stringify(x)},"__proto__":{"a":1}`));
  expect((await trial.chat(body)).status).toBe(200);
  expect((await trial.chat(body)).status).toBe(200);
  const calls = await trial.calls();
  expect(calls.map(({ request }) => request)).toEqual([body, body]);
  const stored = await gateway.db.execute<{ request: string }>(
    sql`select convert_from(request, 'utf8') as request from calls where trial_id = ${trial.id} order by seq`,
  );
  expect(stored.rows.map(({ request }) => Object.keys(JSON.parse(request).lists))).toEqual([
    ['messages'],
    ['messages'],
  ]);
  expect(stored.rows[1]?.request).not.toContain('"list"');
});

const storedBytes = async (trialId: string): Promise<number> => {
  const { rows } = await gateway.db.execute<{ bytes: number }>(
    sql`select sum(pg_column_size(calls.*) + length(request) + coalesce(length(response), 0))::int as bytes from calls where trial_id = ${trialId}`,
  );
  return rows[0]?.bytes ?? 0;
};

test('the store keeps only digest and size of calls that the engine refused, and a restarted gateway answers the next call', async () => {
  const trial = await gateway.trial();
  gateway.engine.fault = 'bad_request';
  const body = JSON.stringify({ ...ASK, metadata: { text: 'x'.repeat(512 * 1024) } });
  for (let i = 0; i < 30; i++) expect((await trial.chat(body)).status).toBe(400);
  gateway.engine.fault = 'none';
  expect(await storedBytes(trial.id)).toBeLessThan(100_000);
  const digest = createHash('sha256').update(body).digest();
  const refused = (await trial.calls()).map((call) => [
    call.status,
    call.httpStatus,
    call.requestBytes,
    digest.equals(Buffer.from(call.digest ?? [])),
    call.request,
    call.response,
  ]);
  expect(refused).toEqual(Array(30).fill(['failed', 400, body.length, true, {}, null]));
  const shown = await (await gateway.admin('GET', `/sessions/${trial.id}`)).json();
  expect(shown.unfinished[0]).toMatchObject({
    request_bytes: body.length,
    request_messages: [],
    reason: expect.stringContaining('engine_400'),
  });
  await gateway.restart();
  expect((await trial.chat(ASK)).status).toBe(200);
  expect((await trial.calls()).at(-1)).toMatchObject({ status: 'completed', request: ASK });
});

test('the store keeps only digest and size of calls after the end of a budget', async () => {
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  expect((await trial.chat(ASK)).status).toBe(200);
  const body = JSON.stringify({ ...ASK, metadata: { text: 'x'.repeat(512 * 1024) } });
  for (let i = 0; i < 5; i++) expect((await (await trial.chat(body)).json()).choices[0].finish_reason).toBe('length');
  expect(await storedBytes(trial.id)).toBeLessThan(20_000);
  expect((await trial.calls()).at(-1)).toMatchObject({
    status: 'failed',
    requestBytes: body.length,
    request: {},
    response: { choices: [{ finish_reason: 'length' }] },
  });
});
