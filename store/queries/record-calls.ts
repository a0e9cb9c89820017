import { inArray } from 'drizzle-orm';
import { recordStatement } from '../calls/record-statement.ts';
import { toRows, type CallRecord } from '../calls/to-rows.ts';
import type { Database } from '../database.ts';
import { toStorable } from '../../core/json.ts';
import { calls } from '../schema.ts';

export type { CallRecord, ChoiceRecord } from '../calls/to-rows.ts';

/**
 * Commits calls in one transaction and returns the ids of the calls that it refused: their trial is unknown, closed or at another attempt,
 * or their reservation was lost. The trials stay locked until the commit, so that no seal comes in between. Repeating it with the same ids
 * is harmless: a call that is stored counts as recorded, even if its trial was closed since.
 */
export async function recordCalls(db: Database, records: readonly CallRecord[]): Promise<Set<string>> {
  const { rows, bytes } = toRows(records);
  const trials = [...new Set(records.map((record) => record.trialId))];
  const retryable = records.flatMap(({ id, isRetryable, digest }) => (isRetryable && digest ? [id] : []));
  const filled = records.flatMap(({ trialId, fillsBytes }) => (fillsBytes === true ? [trialId] : []));
  const values = [toStorable(rows), bytes, trials, filled];
  const isRetryable = retryable.length > 0;
  const hasBlobs = records.some(({ choices }) => choices.some(({ experts }) => experts));
  const { rows: inserted } = await db.$client.query<{ id: string }>({
    ...recordStatement({ isRetryable, hasBlobs }),
    values: isRetryable ? [...values, retryable] : values,
  });
  const kept = new Set(inserted.map(({ id }) => id));
  const refused = records.flatMap(({ id }) => (kept.has(id) ? [] : [id]));
  if (refused.length === 0) return new Set();
  // An earlier try may have committed them. This is a second statement because the first one's snapshot may be older than that commit.
  const stored = await db.select({ id: calls.id }).from(calls).where(inArray(calls.id, refused));
  for (const { id } of stored) kept.add(id);
  return new Set(refused.filter((id) => !kept.has(id)));
}
