import { and, asc, eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { calls } from '../schema.ts';

export type Call = typeof calls.$inferSelect;

/** The calls of one attempt, in the order of their commits. */
export async function readCalls(db: Database, input: { trialId: string; attempt: number }): Promise<Call[]> {
  const { trialId, attempt } = input;
  return db
    .select()
    .from(calls)
    .where(and(eq(calls.trialId, trialId), eq(calls.attempt, attempt)))
    .orderBy(asc(calls.seq));
}
