import { eq, sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { enterCall, extendCall, isUnderWay, leaveCall } from './queries/calls-under-way.ts';
import { callsUnderWay } from './schema.ts';
import { useDatabase } from '../tests/support/harness/use-database.ts';

const store = useDatabase();

const isOver = (id: number) =>
  store.db
    .update(callsUnderWay)
    .set({ until: sql`now() - interval '1 second'` })
    .where(eq(callsUnderWay.id, id));

test('a client’s retry waits only for an earlier try of the same request', async () => {
  const [first, second] = [await enterCall(store.db, 'a'), await enterCall(store.db, 'a')];
  await enterCall(store.db, 'b');
  expect([await isUnderWay(store.db, 'a', first), await isUnderWay(store.db, 'a', second)]).toEqual([false, true]);
  await leaveCall(store.db, first);
  expect(await isUnderWay(store.db, 'a', second)).toBe(false);
});

test('a client’s retry stops waiting for a try that its gateway no longer renews, and waits for one that it renews', async () => {
  const [first, second] = [await enterCall(store.db, 'long'), await enterCall(store.db, 'long')];
  await isOver(first);
  expect(await isUnderWay(store.db, 'long', second)).toBe(false);
  await extendCall(store.db, first);
  expect(await isUnderWay(store.db, 'long', second)).toBe(true);
});

test('the store removes the entries of calls under way that dead gateways left behind', async () => {
  const [dead, other] = [await enterCall(store.db, 'dead'), await enterCall(store.db, 'other')];
  await store.db
    .update(callsUnderWay)
    .set({ until: sql`now() - interval '2 hours'` })
    .where(eq(callsUnderWay.id, dead));
  await leaveCall(store.db, other);
  expect(await store.db.select().from(callsUnderWay).where(eq(callsUnderWay.id, dead))).toEqual([]);
});
