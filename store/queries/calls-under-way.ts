import { and, eq, gt, lt, or, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { callsUnderWay } from '../tables/calls-under-way.ts';

/** A call counts as under way for so long after its last renewal. */
export const LEASE_SECONDS = 30;
const lease = sql`now() + make_interval(secs => ${LEASE_SECONDS})`;

/** Adds a call and returns its number. Calls with the same key and a smaller number came earlier. */
export async function enterCall(db: Database, key: string): Promise<number> {
  const [row] = await db.insert(callsUnderWay).values({ key, until: lease }).returning({ id: callsUnderWay.id });
  if (!row) throw new Error('the insert returned no row');
  return row.id;
}

export async function extendCall(db: Database, id: number): Promise<void> {
  await db.update(callsUnderWay).set({ until: lease }).where(eq(callsUnderWay.id, id));
}

/** Removes a call, and calls that were not renewed for an hour. */
export async function leaveCall(db: Database, id: number): Promise<void> {
  await db
    .delete(callsUnderWay)
    .where(or(eq(callsUnderWay.id, id), lt(callsUnderWay.until, sql`now() - interval '1 hour'`)));
}

/** True when an earlier call with the same key is under way. */
export async function isUnderWay(db: Database, key: string, id: number): Promise<boolean> {
  const earlier = and(eq(callsUnderWay.key, key), lt(callsUnderWay.id, id), gt(callsUnderWay.until, sql`now()`));
  return (await db.select({ id: callsUnderWay.id }).from(callsUnderWay).where(earlier).limit(1)).length > 0;
}
