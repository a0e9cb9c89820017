import { and, eq, sql, type SQL } from 'drizzle-orm';
import type { JsonObject } from '../../core/json.ts';
import { MissingContent, restorer, type Texts } from '../calls/restore.ts';
import type { Database } from '../database.ts';
import { calls, type ProtocolName } from '../schema.ts';
import { NO_LIMIT, TooMuchToRead, type ReadLimit } from './read-limit.ts';

type Row = { id: string; baseId: string | null; httpStatus: number; request: Uint8Array; response: Uint8Array | null };
type SizedRow = Omit<Row, 'request'> & { request: Uint8Array | null; total: string };
export type ReadCall = Texts & { httpStatus: number };

const COLUMNS = ['id', 'seq', 'base_id', 'http_status', 'request', 'response'];
const columnsOf = (table: SQL): SQL =>
  sql.join(
    COLUMNS.map((column) => sql`${table}.${sql.identifier(column)}`),
    sql`, `,
  );

/**
 * Reads the request and the reply of one call. It restores them from the calls that the call builds on; when the call refers to a content
 * of another branch, from all calls of the attempt before it.
 * @throws TooMuchToRead before it loads more than the limit
 */
export async function readCall(
  db: Database,
  { trialId, attempt, id }: { trialId: string; attempt: number; id: string },
  limit = NO_LIMIT,
): Promise<ReadCall | undefined> {
  const ofAttempt = sql`call.trial_id = ${trialId} and call.attempt = ${attempt}`;
  const line = sql`
    with recursive found as (
      select ${columnsOf(sql`call`)} from ${calls} call where call.id = ${id} and ${ofAttempt}
      union all
      select ${columnsOf(sql`base`)} from ${calls} base join found on base.id = found.base_id
    )`;
  try {
    return restoredLast(await readRows(db, line, limit), limit);
  } catch (error) {
    if (!(error instanceof MissingContent)) throw error;
    const before = sql`with found as (select ${columnsOf(sql`call`)} from ${calls} call where ${ofAttempt} and call.seq <= (select seq from ${calls} where id = ${id}))`;
    return restoredLast(await readRows(db, before, limit), limit);
  }
}

/**
 * Reads the request of one call of any attempt of a trial.
 * @throws TooMuchToRead before it loads more than so many bytes
 */
export async function readCallRequest(
  db: Database,
  { trialId, id }: { trialId: string; id: string },
  maxBytes: number,
): Promise<{ attempt: number; protocol: ProtocolName; request: JsonObject } | undefined> {
  const [found] = await db
    .select({ attempt: calls.attempt, protocol: calls.protocol })
    .from(calls)
    .where(and(eq(calls.id, id), eq(calls.trialId, trialId)));
  const read = found && (await readCall(db, { trialId, attempt: found.attempt, id }, { ...NO_LIMIT, maxBytes }));
  return found && read && { ...found, request: read.request };
}

/** Reads rows unless they exceed the limit. PostgreSQL knows the length of a value without loading it. */
async function readRows(db: Database, found: SQL, { maxBytes }: ReadLimit): Promise<Row[]> {
  const { rows } = await db.execute<SizedRow>(sql`
    ${found}, size as (select coalesce(sum(octet_length(request) + coalesce(octet_length(response), 0)), 0) as total from found)
    select id, base_id as "baseId", http_status as "httpStatus", total, case when total <= ${maxBytes} then request end as request,
      case when total <= ${maxBytes} then response end as response
    from found cross join size order by seq`);
  return rows.map(({ total, request, ...row }) => {
    if (!request) throw new TooMuchToRead(Number(total));
    return { ...row, request };
  });
}

function restoredLast(rows: readonly Row[], { onRead }: ReadLimit): ReadCall | undefined {
  const restore = restorer();
  return rows
    .map((row) => {
      onRead(row.request);
      if (row.response) onRead(row.response);
      return { ...restore(row), httpStatus: row.httpStatus };
    })
    .at(-1);
}
