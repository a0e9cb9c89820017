import { eq } from 'drizzle-orm';
import { beforeEach, expect, test } from 'vitest';
import { claimReply } from './queries/claim-reply.ts';
import { retractCalls } from './queries/retract-calls.ts';
import { openAttempt } from './queries/open-attempt.ts';
import { recordCalls } from './queries/record-calls.ts';
import { settleDeliveries } from './queries/settle-deliveries.ts';
import { undeliveredCalls } from './schema.ts';
import { callRecord } from '../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../tests/support/harness/use-database.ts';

const store = useDatabase();
const digest = Buffer.alloc(32, 7);
let trialId: string;
let trials = 0;
beforeEach(async () => {
  trialId = `trial-${++trials}`;
  await openAttempt(store.db, { trialId });
});

const claim = (more: Partial<Parameters<typeof claimReply>[1]> = {}) =>
  claimReply(store.db, { trialId, attempt: 1, digest, idempotencyKey: null, ...more });

async function record(more: Partial<Parameters<typeof callRecord>[0]> = {}): Promise<string> {
  const response = { choices: [{ index: 0, message: { role: 'assistant', content: 'hello' } }] };
  const call = callRecord({ trialId, digest, isRetryable: true, response, ...more });
  expect(await recordCalls(store.db, [call])).toEqual(new Set());
  return call.id;
}

test('the store replays no reply that a gateway may still deliver, and no delivered one', async () => {
  const id = await record();
  expect(await claim()).toBe('under_way');
  await settleDeliveries(store.db, { whole: [id], cut: [] });
  expect(await claim()).toBeUndefined();
});

test('the store hands out an undelivered reply once, only to a retry of the same trial, attempt, body and idempotency key', async () => {
  const id = await record({ idempotencyKey: 'k' });
  await settleDeliveries(store.db, { whole: [], cut: [id] });
  for (const other of [
    { attempt: 2 },
    { digest: Buffer.alloc(32, 8) },
    { idempotencyKey: 'other' },
    { trialId: 'another' },
  ])
    expect(await claim(other)).toBeUndefined();
  expect(await claim({ idempotencyKey: 'k' })).toMatchObject({
    id,
    reply: { choices: [{ message: { content: 'hello' } }] },
  });
  expect(await claim({ idempotencyKey: 'k' })).toBeUndefined();
});

test('if a client sent the same request several times and the replies are undelivered, its retries get the oldest reply first', async () => {
  const ids = [await record(), await record(), await record()];
  await settleDeliveries(store.db, { whole: ids.slice(0, 1), cut: ids.slice(1) });
  expect([await claim(), await claim(), await claim()]).toMatchObject([{ id: ids[1] }, { id: ids[2] }, undefined]);
});

test('a reply not known to be delivered counts as undelivered if its gateway lost its database connection, or after 30 s', async () => {
  const orphan = await record();
  await store.db.update(undeliveredCalls).set({ backend: 0 }).where(eq(undeliveredCalls.callId, orphan));
  expect(await claim()).toMatchObject({ id: orphan });
  const silent = await record();
  await store.db
    .update(undeliveredCalls)
    .set({ recordedAt: new Date(Date.now() - 31_000) })
    .where(eq(undeliveredCalls.callId, silent));
  expect(await claim()).toMatchObject({ id: silent });
});

test('a retry never gets the reply of a call that failed or was taken back, or of a client that does not mark its retries', async () => {
  await record({ status: 'failed' });
  await record({ isRetryable: false });
  const late = await record();
  await retractCalls(store.db, [late]);
  expect(await claim()).toBeUndefined();
});

test('an undelivered reply is handed out with all ids of its prompt, also those that earlier calls store', async () => {
  const ids = (...values: number[]) => new Int32Array(values);
  const first = await record({ isRetryable: false, promptTokenIds: ids(1, 2), choice: { completionTokenIds: ids(3) } });
  const base = { callId: first, tokenIds: ids(1, 2, 3), lists: {}, text: '' };
  const id = await record({ base, promptTokenIds: ids(1, 2, 3, 4), choice: { completionTokenIds: ids(5) } });
  await settleDeliveries(store.db, { whole: [], cut: [id] });
  expect(await claim({ withIds: true })).toMatchObject({ id, prompt: ids(1, 2, 3, 4), completions: [ids(5)] });
});

test('the store forgets undelivered replies that no retry asks for after an hour', async () => {
  const id = await record();
  await store.db
    .update(undeliveredCalls)
    .set({ recordedAt: new Date(Date.now() - 3_700_000) })
    .where(eq(undeliveredCalls.callId, id));
  await settleDeliveries(store.db, { whole: [], cut: [] });
  expect(await claim()).toBeUndefined();
});
