import { and, eq, sql, type AnyColumn, type SQL } from 'drizzle-orm';
import { iterations } from '../schema.ts';

export type TakeKey = { runId: string; iteration: number; take: number };
type TakeColumns = { runId: AnyColumn; iteration: AnyColumn; take: AnyColumn };
type BatchColumns = { runId: AnyColumn; batchIteration: AnyColumn; batchTake: AnyColumn };

/** Selects the rows of one take. */
export const ofTake = (row: TakeColumns, { runId, iteration, take }: TakeKey): SQL | undefined =>
  and(eq(row.runId, runId), eq(row.iteration, iteration), eq(row.take, take));

/** Joins two tables by the take of their rows. */
export const isSameTake = (one: TakeColumns, other: TakeColumns): SQL | undefined =>
  and(eq(one.runId, other.runId), eq(one.iteration, other.iteration), eq(one.take, other.take));

/** Returns the columns of the take whose batch has a row, for `ofTake` and `isLive`. */
export const batchOf = ({ runId, batchIteration, batchTake }: BatchColumns): TakeColumns => ({
  runId,
  iteration: batchIteration,
  take: batchTake,
});

/** True when a take is not superseded. Nothing that a superseded take made counts. */
export const isLive = (row: TakeColumns): SQL<boolean> =>
  sql`exists (select 1 from ${iterations} as live where live.run_id = ${row.runId} and live.iteration = ${row.iteration} and live.take = ${row.take} and live.status <> 'superseded')`;
