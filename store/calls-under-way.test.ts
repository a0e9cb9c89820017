import { eq, sql } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDatabase, type Database } from './database.ts';
import { enterCall, extendCall, isUnderWay, leaveCall } from './queries/calls-under-way.ts';
import { callsUnderWay } from './schema.ts';
import { TestPostgres } from './testing/postgres.ts';

let postgres: TestPostgres;
let db: Database;
beforeAll(async () => {
  postgres = await TestPostgres.create();
  db = openDatabase(postgres.url);
}, 60_000);
afterAll(async () => {
  await db.$client.end();
  await postgres.close();
});

const isOver = (id: number) => db.update(callsUnderWay).set({ until: sql`now() - interval '1 second'` }).where(eq(callsUnderWay.id, id));

test('a retry waits for itself, for a later try or for another request', async () => {
  const [first, second] = [await enterCall(db, 'a'), await enterCall(db, 'a')];
  await enterCall(db, 'b');
  expect([await isUnderWay(db, 'a', first), await isUnderWay(db, 'a', second)]).toEqual([false, true]);
  await leaveCall(db, first);
  expect(await isUnderWay(db, 'a', second)).toBe(false);
});

test('a retry waits for ever for a try whose gateway has died, or not for one that goes on for long', async () => {
  const [first, second] = [await enterCall(db, 'long'), await enterCall(db, 'long')];
  await isOver(first);
  expect(await isUnderWay(db, 'long', second)).toBe(false);
  await extendCall(db, first);
  expect(await isUnderWay(db, 'long', second)).toBe(true);
});

test('what gateways left behind when they died stays', async () => {
  const [dead, other] = [await enterCall(db, 'dead'), await enterCall(db, 'other')];
  await db.update(callsUnderWay).set({ until: sql`now() - interval '2 hours'` }).where(eq(callsUnderWay.id, dead));
  await leaveCall(db, other);
  expect(await db.select().from(callsUnderWay).where(eq(callsUnderWay.id, dead))).toEqual([]);
});
