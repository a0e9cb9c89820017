import { and, desc, eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { calls } from '../schema.ts';
import type { Call } from './read-calls.ts';

export type SameCall = { trialId: string; attempt: number; digest: string; idempotencyKey: string | null };

/** The last call of this attempt with the same body, and the same key where the client names one, if it completed. */
export async function findCompletedCall(db: Database, { trialId, attempt, digest, idempotencyKey }: SameCall): Promise<Call | undefined> {
  const same = and(eq(calls.trialId, trialId), eq(calls.attempt, attempt), eq(calls.digest, digest));
  const [last] = await db
    .select()
    .from(calls)
    .where(idempotencyKey === null ? same : and(same, eq(calls.idempotencyKey, idempotencyKey)))
    .orderBy(desc(calls.seq))
    .limit(1);
  return last?.status === 'completed' ? last : undefined;
}
