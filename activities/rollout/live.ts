import { sql, type AnyColumn, type SQL } from 'drizzle-orm';
import { iterations } from '../../store/schema.ts';

/** Whether a take stands: opening the next one supersedes it, and then nothing that it made counts. */
export const isLive = (row: { runId: AnyColumn; iteration: AnyColumn; take: AnyColumn }): SQL<boolean> =>
  sql`exists (select 1 from ${iterations} as live where live.run_id = ${row.runId} and live.iteration = ${row.iteration} and live.take = ${row.take} and live.status <> 'superseded')`;
