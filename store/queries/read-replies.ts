import { sql } from 'drizzle-orm';
import { parseStored } from '../calls/restore.ts';
import type { Database } from '../database.ts';
import type { JsonObject } from '../../core/json.ts';
import { calls } from '../schema.ts';
import { TooMuchToRead, type ReadLimit } from './read-limit.ts';

type Row = { id: string; response: Uint8Array | null; total: string };

/**
 * Reads the replies to some calls of an attempt, by call. It leaves out a call that has no reply or belongs to another attempt.
 * @throws TooMuchToRead before it loads more than the limit
 */
export async function readReplies(
  db: Database,
  { trialId, attempt, ids }: { trialId: string; attempt: number; ids: readonly string[] },
  { maxBytes, onRead }: ReadLimit,
): Promise<Map<string, JsonObject>> {
  const { rows } = await db.execute<Row>(sql`
    with found as (
      select id, response from ${calls}
      where id = any(${sql.param([...ids])}::uuid[]) and trial_id = ${trialId} and attempt = ${attempt} and http_status = 200 and response is not null
    ), size as (select coalesce(sum(octet_length(response)), 0) as total from found)
    select id, total, case when total <= ${maxBytes} then response end as response from found cross join size`);
  return new Map(
    rows.map(({ id, response, total }) => {
      if (!response) throw new TooMuchToRead(Number(total));
      onRead(response);
      return [id, parseStored(response)];
    }),
  );
}
