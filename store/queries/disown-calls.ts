import { and, eq, inArray, or } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { calls } from '../schema.ts';

/** Marks calls failed whose commit came too late: their agents were told that they failed, and got no other answer since. */
export async function disownCalls(db: Database, ids: readonly string[]): Promise<void> {
  const theirs = or(inArray(calls.id, [...ids]), inArray(calls.choiceOf, [...ids]));
  await db.update(calls).set({ status: 'failed', reason: 'committed_too_late' }).where(and(theirs, eq(calls.replayed, false)));
}
