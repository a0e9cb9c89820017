import { and, eq, sql, type AnyColumn, type SQL } from 'drizzle-orm';
import { iterations } from '../../store/schema.ts';

export type TakeKey = { runId: string; iteration: number; take: number };
type TakeColumns = { runId: AnyColumn; iteration: AnyColumn; take: AnyColumn };
type Batched = { runId: AnyColumn; batchIteration: AnyColumn; batchTake: AnyColumn };

/** Rows of one take. */
export const ofTake = (row: TakeColumns, { runId, iteration, take }: TakeKey): SQL | undefined =>
  and(eq(row.runId, runId), eq(row.iteration, iteration), eq(row.take, take));

/** The take whose batch a row is in, where `ofTake` and `isLive` ask for one. */
export const batchOf = ({ runId, batchIteration, batchTake }: Batched): TakeColumns => ({ runId, iteration: batchIteration, take: batchTake });

/** Whether a take stands: opening the next one supersedes it, and then nothing that it made counts. */
export const isLive = (row: TakeColumns): SQL<boolean> =>
  sql`exists (select 1 from ${iterations} as live where live.run_id = ${row.runId} and live.iteration = ${row.iteration} and live.take = ${row.take} and live.status <> 'superseded')`;
