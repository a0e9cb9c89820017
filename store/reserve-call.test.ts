import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { openDatabase } from './database.ts';
import { expireReservations } from '../tests/support/harness/expire-reservations.ts';
import { findTrial } from './queries/find-trials.ts';
import { openAttempt } from './queries/open-attempt.ts';
import { recordCalls } from './queries/record-calls.ts';
import { removeReservation, renewReservation, reserveCall, type ReservationRequest } from './queries/reserve-call.ts';
import { lockTrial } from './queries/transaction.ts';
import type { Budgets } from './schema.ts';
import { callRecord } from '../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../tests/support/harness/use-database.ts';

const store = useDatabase();
let trials = 0;

async function trial(budgets: Budgets) {
  const trialId = `trial-${++trials}`;
  await openAttempt(store.db, { trialId, budgets });
  const wish = (more: Partial<ReservationRequest> = {}): ReservationRequest => ({
    trialId,
    attempt: 1,
    callId: crypto.randomUUID(),
    replies: 1,
    tokens: null,
    ...more,
  });
  return {
    trialId,
    wish,
    reserve: (more: Partial<ReservationRequest> = {}) => reserveCall(store.db, wish(more)),
    record: (id: string, tokens = 0, status: 'completed' | 'failed' = 'completed') =>
      recordCalls(store.db, [
        callRecord({
          id,
          trialId,
          status,
          reserved: true,
          choice: { completionTokenIds: new Int32Array(tokens), logprobs: new Float32Array(tokens) },
        }),
      ]),
    reserved: async () => (await findTrial(store.db, trialId))?.reserved,
  };
}
const granted = <T>(all: readonly T[]) => all.filter((each) => each !== null);

/** Runs `one` as many times as there are connections. All wait for the trial's row before the first one gets it. */
async function together<T>(trialId: string, one: () => Promise<T>): Promise<T[]> {
  const beside = openDatabase(store.postgres.url, { maxConnections: 2 });
  const waiting = sql<number>`select count(*)::int as waiting from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
  const begun = await beside.transaction(async (tx) => {
    await lockTrial(tx, trialId);
    const all = Promise.all(Array.from({ length: 8 }, one));
    // A query within the transaction would see the same count again and again.
    while ((await beside.execute<{ waiting: number }>(waiting)).rows[0]?.waiting !== 8);
    return { all };
  });
  await beside.$client.end();
  return begun.all;
}

test('concurrent reservations never exceed a trial’s budget', async () => {
  const { reserve, trialId } = await trial({ calls: 7 });
  expect(granted(await together(trialId, reserve))).toHaveLength(7);
  const other = await trial({ tokens: 100 });
  expect(granted(await together(other.trialId, () => other.reserve({ tokens: 30 })))).toEqual(
    Array(3).fill({ tokens: 30 }),
  );
});

test('calls that are reserved and recorded concurrently use exactly their trial’s budget', async () => {
  const { wish, record, reserve, trialId, reserved } = await trial({ calls: 20 });
  let under = 0;
  const one = async () => {
    const { callId } = wish();
    if ((await reserve({ callId })) === null) return;
    under += 1;
    await record(callId);
  };
  for (let round = 0; round < 5; round++) await Promise.all(Array.from({ length: 8 }, one));
  expect(under).toBe(20);
  expect(await findTrial(store.db, trialId)).toMatchObject({ usedCalls: 20 });
  expect(await reserved()).toEqual({});
});

test('used and reserved tokens of a budget are not granted again, and a call gets at least one token for each of its replies', async () => {
  const { reserve, record, wish } = await trial({ tokens: 10 });
  const { callId } = wish();
  expect(await reserve({ callId, tokens: 6 })).toEqual({ tokens: 6 });
  expect(await reserve({ tokens: 5 })).toBeNull();
  expect(await reserve()).toBeNull();
  expect(await reserve({ callId, tokens: 6 })).toEqual({ tokens: 6 });
  await record(callId, 4, 'failed');
  expect(await reserve({ tokens: 700, replies: 7 })).toBeNull();
  expect(await reserve({ tokens: 700, replies: 6 })).toEqual({ tokens: 6 });
});

test('an expired reservation frees its part of the budget, and a renewed one keeps it', async () => {
  const { reserve, wish, trialId } = await trial({ calls: 1 });
  const { callId } = wish();
  await reserve({ callId });
  await expireReservations(store.db, trialId);
  await renewReservation(store.db, { trialId, callId });
  expect(await reserve()).toBeNull();
  await expireReservations(store.db, trialId);
  expect(await reserve()).toEqual({ tokens: null });
});

test.each([{ calls: 3 }, { tokens: 15 }])(
  'a call whose reservation expired is recorded as long as no other call needs its part of the budget: %j',
  async (budgets) => {
    const { reserve, record, reserved, wish, trialId } = await trial(budgets);
    const [late, lost] = [wish(), wish()];
    for (const { callId } of [late, lost]) await reserve({ callId, tokens: 5 });
    await expireReservations(store.db, trialId);
    expect(await reserve({ tokens: 5 })).not.toBeNull();
    expect(Object.keys((await reserved()) ?? {})).toHaveLength(3);
    expect(await record(late.callId, 5)).toEqual(new Set());
    await reserve({ tokens: 5 });
    expect(await reserved()).not.toHaveProperty(lost.callId);
  },
);

test('reserving, renewing and releasing a part of a budget do not wait for a synchronous commit', async () => {
  const { reserve, wish, trialId, reserved } = await trial({ calls: 1 });
  await store.db.execute(
    sql`create or replace function on_disk() returns trigger language plpgsql as 'begin if current_setting(''synchronous_commit'') <> ''off'' then raise ''waits''; end if; return new; end'`,
  );
  await store.db.execute(sql`create trigger on_disk before update on trials for each row execute function on_disk()`);
  const { callId } = wish();
  await reserve({ callId });
  await renewReservation(store.db, { trialId, callId });
  await removeReservation(store.db, { trialId, callId });
  await store.db.execute(sql`drop trigger on_disk on trials`);
  expect(await reserved()).toEqual({});
});

test('a call whose reservation expired is refused when another call has its part of the budget, and else recorded', async () => {
  const { reserve, record, wish, trialId, reserved } = await trial({ calls: 1 });
  const [{ callId: first }, { callId: second }] = [wish(), wish()];
  await reserve({ callId: first });
  await expireReservations(store.db, trialId);
  await reserve({ callId: second });
  await renewReservation(store.db, { trialId, callId: first });
  expect(await record(first)).toEqual(new Set([first]));
  await expireReservations(store.db, trialId);
  expect(await record(second)).toEqual(new Set());
  // This is a commit that is repeated because its answer was lost.
  expect(await record(second)).toEqual(new Set());
  expect(await reserved()).toEqual({});
});

test('a closed attempt gets no reservation, and the next attempt begins without the earlier reservations', async () => {
  const { reserve, trialId } = await trial({ calls: 1 });
  await reserve();
  await openAttempt(store.db, { trialId, attempt: 2, budgets: { calls: 1 } });
  expect(await reserve({ attempt: 1 })).toBeNull();
  expect(await reserve({ attempt: 2 })).toEqual({ tokens: null });
});
