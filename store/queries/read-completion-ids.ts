import { and, asc, eq, isNull } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { calls } from '../schema.ts';

/**
 * Returns the ids that the model sampled in the conversation of an attempt's last completed call, in their order: those of that call and of
 * the calls that it continues.
 */
export async function readCompletionIds(
  db: Database,
  { trialId, attempt }: { trialId: string; attempt: number },
): Promise<number[]> {
  const completed = and(
    eq(calls.trialId, trialId),
    eq(calls.attempt, attempt),
    eq(calls.status, 'completed'),
    isNull(calls.choiceOf),
  );
  const rows = await db
    .select({ id: calls.id, parentId: calls.parentId, ids: calls.completionTokenIds })
    .from(calls)
    .where(completed)
    .orderBy(asc(calls.seq));
  const byId = new Map(rows.map((row) => [row.id, row]));
  const found: number[][] = [];
  for (let call = rows.at(-1); call; call = call.parentId === null ? undefined : byId.get(call.parentId))
    found.push([...(call.ids ?? [])]);
  return found.toReversed().flat();
}
