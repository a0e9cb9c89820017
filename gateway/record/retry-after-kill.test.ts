import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDatabase, type Database } from '../../store/database.ts';
import { undeliveredCalls } from '../../store/schema.ts';
import { readCalls } from '../../store/queries/read-calls.ts';
import { TestPostgres } from '../../tests/support/harness/postgres.ts';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { GatewayProcess } from '../../tests/support/harness/gateway-process.ts';
import { ASK, eventually, readStream } from '../../tests/support/harness/gateways.ts';
import { isCommitting } from '../../tests/support/fakes/lost-replies.ts';
import { slowCommits } from '../../tests/support/fakes/slow-commits.ts';

const ADMIN = { authorization: 'Bearer the admin key' };
let postgres: TestPostgres;
let db: Database;
let engine: FakeEngine;
let gateways: [GatewayProcess, GatewayProcess];
beforeAll(async () => {
  postgres = await TestPostgres.create();
  db = openDatabase(postgres.url);
  engine = await new FakeEngine().start();
  const options = {
    engines: [engine.url],
    databaseUrl: postgres.url,
    adminKey: 'the admin key',
    secret: 'a secret of sixteen characters',
  };
  gateways = [new GatewayProcess(options), new GatewayProcess(options)];
  await gateways[1].start();
});
afterAll(async () => {
  for (const gateway of gateways) await gateway.kill();
  await engine.stop();
  await db.$client.end();
  await postgres.close();
});

/**
 * Kills a gateway while PostgreSQL commits a call, before its agent sees an end. The agent tries again at another process, before or after
 * the end of that commit.
 */
async function retryAfterKill({
  trialId,
  stream,
  headers,
  afterCommit,
}: {
  trialId: string;
  stream: boolean;
  headers: Record<string, string>;
  afterCommit: boolean;
}) {
  const [dying, other] = gateways;
  await dying.start();
  const { api_key } = await (
    await fetch(`${dying.url}/sessions/${trialId}`, { method: 'POST', headers: ADMIN })
  ).json();
  const ask = (gateway: GatewayProcess, more: Record<string, string>) =>
    fetch(`${gateway.url}/${trialId}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${api_key}`, ...more },
      body: JSON.stringify({ ...ASK, stream }),
    });
  const before = engine.seen.length;
  await slowCommits(db, 1_000);
  const first = ask(dying, { ...headers, 'x-stainless-retry-count': '0' }).then((reply) => reply.text());
  first.catch(() => {});
  await eventually(() => isCommitting(db));
  await dying.kill();
  await expect(first).rejects.toThrow();
  if (afterCommit) await eventually(async () => (await readCalls(db, { trialId, attempt: 1 })).length > 0);
  const retried = await ask(other, headers);
  const text = stream
    ? (await readStream(retried)).chunks.map((chunk) => chunk.choices?.[0]?.delta?.content ?? '').join('')
    : (await retried.json()).choices[0].message.content;
  const recorded = (await readCalls(db, { trialId, attempt: 1 })).map(({ id, status }) => ({ id, status }));
  return { text, sampled: engine.seen.length - before, recorded, answered: retried.headers.get('x-trialgate-call') };
}

const KEYED = { stream: false, headers: { 'idempotency-key': 'k' } };
const COUNTED = { stream: true, headers: { 'x-stainless-retry-count': '1' } };

test.each<typeof KEYED | typeof COUNTED>([KEYED, COUNTED])(
  'a client’s retry gets the reply of a call that was committed when its gateway was killed (stream: $stream)',
  async ({ stream, headers }) => {
    const { text, sampled, recorded, answered } = await retryAfterKill({
      trialId: `after-${stream}`,
      stream,
      headers: { ...headers },
      afterCommit: true,
    });
    expect([text, sampled]).toEqual(['Hello 🦀 world\u0000!', 1]);
    expect(recorded).toEqual([{ id: answered, status: 'completed' }]);
  },
);

test('a client’s retry waits for a commit that still runs after its gateway was killed, and gets that reply', async () => {
  const { sampled, recorded, answered } = await retryAfterKill({ trialId: 'during', ...KEYED, afterCommit: false });
  await eventually(async () => !(await isCommitting(db)));
  expect(sampled).toBe(1);
  expect(recorded).toEqual([{ id: answered, status: 'completed' }]);
});

test('a client’s retry at another gateway is a new call when the first reply was delivered whole before its gateway was killed', async () => {
  const [dying, other] = gateways;
  await dying.start();
  await db.execute(sql`drop trigger slow_disk on calls`);
  const trialId = 'delivered';
  const { api_key } = await (
    await fetch(`${dying.url}/sessions/${trialId}`, { method: 'POST', headers: ADMIN })
  ).json();
  const ask = (gateway: GatewayProcess, count: string) =>
    fetch(`${gateway.url}/${trialId}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${api_key}`, 'x-stainless-retry-count': count },
      body: JSON.stringify(ASK),
    });
  await (await ask(dying, '0')).text();
  await eventually(async () => (await db.$count(undeliveredCalls)) === 0);
  await dying.kill();
  const retried = await ask(other, '1');
  expect([retried.status, retried.headers.get('x-trialgate-replay')]).toEqual([200, null]);
  expect(await readCalls(db, { trialId, attempt: 1 })).toHaveLength(2);
});
