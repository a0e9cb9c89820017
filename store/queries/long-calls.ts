import { eq, lt, or, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { longCalls } from '../schema.ts';

export type LongCall = Omit<typeof longCalls.$inferInsert, 'seenAt'>;

/** Writes what a gateway knows of a call that is under way for several seconds. */
export async function noteLongCall(db: Database, call: LongCall): Promise<void> {
  const { engine = null, firstTokenAt = null, tokens = 0 } = call;
  await db
    .insert(longCalls)
    .values(call)
    .onConflictDoUpdate({ target: longCalls.callId, set: { engine, firstTokenAt, tokens, seenAt: sql`now()` } });
}

/** Removes a call that has ended, and the rows that a dead gateway left an hour ago. */
export async function endLongCall(db: Database, callId: string): Promise<void> {
  await db
    .delete(longCalls)
    .where(or(eq(longCalls.callId, callId), lt(longCalls.seenAt, sql`now() - interval '1 hour'`)));
}
