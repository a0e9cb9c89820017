import { and, asc, eq } from 'drizzle-orm';
import { restoreCalls, type RestoredCall } from '../calls/restore.ts';
import type { Database } from '../database.ts';
import { calls } from '../schema.ts';

export type StoredCall = RestoredCall<typeof calls.$inferSelect>;

/** Returns the restored calls of one attempt in the order of their commits. */
export async function readCalls(
  db: Database,
  { trialId, attempt }: { trialId: string; attempt: number },
): Promise<StoredCall[]> {
  const ofAttempt = and(eq(calls.trialId, trialId), eq(calls.attempt, attempt));
  return restoreCalls(await db.select().from(calls).where(ofAttempt).orderBy(asc(calls.seq)));
}
