import { inArray } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { calls } from '../schema.ts';

/** Marks calls failed whose commit came too late: their agents were told that they failed. */
export async function disownCalls(db: Database, ids: readonly string[]): Promise<void> {
  await db.update(calls).set({ status: 'failed', reason: 'committed_too_late' }).where(inArray(calls.id, [...ids]));
}
