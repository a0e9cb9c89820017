import { and, asc, eq, gt } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { calls } from '../schema.ts';

export type Call = typeof calls.$inferSelect;

/** The calls of one attempt, in the order of their commits; those that were committed later than `after`. */
export async function readCalls(db: Database, input: { trialId: string; attempt: number; after?: number }): Promise<Call[]> {
  const { trialId, attempt, after = 0 } = input;
  return db
    .select()
    .from(calls)
    .where(and(eq(calls.trialId, trialId), eq(calls.attempt, attempt), gt(calls.seq, after)))
    .orderBy(asc(calls.seq));
}
