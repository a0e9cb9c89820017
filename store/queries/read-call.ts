import { sql } from 'drizzle-orm';
import { MissingContent, restorer, type Texts } from '../calls/restore.ts';
import type { Database } from '../database.ts';
import { calls } from '../schema.ts';
import { readCalls } from './read-calls.ts';

type Row = { id: string; baseId: string | null; httpStatus: number; request: Uint8Array; response: Uint8Array | null };
export type ReadCall = Texts & { httpStatus: number };

/**
 * The texts of one call of an attempt. It is put together from the calls that it builds on; where it names a content that another
 * branch brought, from all of the attempt.
 */
export async function readCall(db: Database, { trialId, attempt, id }: { trialId: string; attempt: number; id: string }): Promise<ReadCall | undefined> {
  const { rows } = await db.execute<Row>(sql`
    with recursive line as (
      select id, seq, base_id, http_status, request, response from ${calls} where id = ${id} and trial_id = ${trialId} and attempt = ${attempt}
      union all
      select base.id, base.seq, base.base_id, base.http_status, base.request, base.response from ${calls} base join line on base.id = line.base_id
    )
    select id, base_id as "baseId", http_status as "httpStatus", request, response from line order by seq`);
  const restore = restorer();
  try {
    return rows.map((row) => ({ ...restore(row), httpStatus: row.httpStatus })).at(-1);
  } catch (error) {
    if (!(error instanceof MissingContent)) throw error;
    return (await readCalls(db, { trialId, attempt })).find((call) => call.id === id);
  }
}
