import { recordCalls as statement } from '../calls/record-statement.ts';
import { toRows, type CallRecord } from '../calls/to-rows.ts';
import type { Database } from '../database.ts';

export type { CallRecord, ChoiceRecord } from '../calls/to-rows.ts';

/**
 * Commits calls, all or none, and returns the ids of those it refused: their trial is unknown or closed, or at another attempt.
 * The trials stay locked until the commit, so that no seal falls in between. Repeating it with the same ids is harmless.
 */
export async function recordCalls(db: Database, records: readonly CallRecord[]): Promise<Set<string>> {
  const { rows, bytes } = toRows(records);
  const trials = [...new Set(records.map((record) => record.trialId))];
  const { rows: accepted } = await db.$client.query<{ id: string }>({ ...statement, values: [JSON.stringify(rows), bytes, trials] });
  const kept = new Set(accepted.map(({ id }) => id));
  return new Set(records.flatMap(({ id }) => (kept.has(id) ? [] : [id])));
}
