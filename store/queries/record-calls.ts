import { inArray } from 'drizzle-orm';
import { recordCalls as statement, recordRetryableCalls } from '../calls/record-statement.ts';
import { toRows, type CallRecord } from '../calls/to-rows.ts';
import type { Database } from '../database.ts';
import { toStorable } from '../json.ts';
import { calls } from '../schema.ts';

export type { CallRecord, ChoiceRecord } from '../calls/to-rows.ts';

/**
 * Commits calls, all or none, and returns the ids of those it refused: their trial is unknown or closed, or at another attempt,
 * or what they had reserved of its budgets was lost.
 * The trials stay locked until the commit, so that no seal falls in between. Repeating it with the same ids is harmless,
 * and says of a call that is there already that it is, though its trial closed meanwhile.
 */
export async function recordCalls(db: Database, records: readonly CallRecord[]): Promise<Set<string>> {
  const { rows, bytes } = toRows(records);
  const trials = [...new Set(records.map((record) => record.trialId))];
  const retryable = records.flatMap(({ id, isRetryable, digest }) => (isRetryable && digest ? [id] : []));
  const filled = records.flatMap(({ trialId, fillsBytes }) => (fillsBytes === true ? [trialId] : []));
  const values = [toStorable(rows), bytes, trials, filled];
  const asked = retryable.length === 0 ? { ...statement, values } : { ...recordRetryableCalls, values: [...values, retryable] };
  const { rows: inserted } = await db.$client.query<{ id: string }>(asked);
  const kept = new Set(inserted.map(({ id }) => id));
  const refused = records.flatMap(({ id }) => (kept.has(id) ? [] : [id]));
  if (refused.length === 0) return new Set();
  // What an earlier try committed. A statement of its own: that one's snapshot may be from before that commit.
  const there = await db.select({ id: calls.id }).from(calls).where(inArray(calls.id, refused));
  for (const { id } of there) kept.add(id);
  return new Set(refused.filter((id) => !kept.has(id)));
}
