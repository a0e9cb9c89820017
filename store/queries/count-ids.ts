import { and, eq, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { calls } from '../schema.ts';

/** Counts the ids of an attempt's calls with their whole prompts, as they are once they are restored. PostgreSQL knows it without loading them. */
export async function countIds(
  db: Database,
  { trialId, attempt }: { trialId: string; attempt: number },
): Promise<number> {
  const own = sql`octet_length(${calls.promptTokenIds}) / 4 + coalesce(octet_length(${calls.completionTokenIds}) / 4, 0)`;
  const [{ ids } = { ids: 0 }] = await db
    .select({ ids: sql<number>`coalesce(sum(${calls.sharedIds} + ${own}), 0)::float8` })
    .from(calls)
    .where(and(eq(calls.trialId, trialId), eq(calls.attempt, attempt)));
  return ids;
}
