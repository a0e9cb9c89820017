import { sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { longCalls } from '../schema.ts';

export type LongCall = Omit<Required<typeof longCalls.$inferInsert>, 'seenAt'>;

/** Writes what a gateway knows of its calls that have been under way for several seconds, in one statement with one parameter. */
export async function noteLongCalls(db: Database, calls: readonly LongCall[]): Promise<void> {
  await db.execute(sql`
    insert into ${longCalls} (call_id, trial_id, attempt, run_id, engine, stream, constrained, started_at, first_token_at, tokens)
    select "callId", "trialId", attempt, "runId", engine, stream, constrained, "startedAt", "firstTokenAt", tokens
    from json_to_recordset(${JSON.stringify(calls)}::json) as x("callId" uuid, "trialId" text, attempt integer, "runId" text, engine text,
      stream boolean, constrained boolean, "startedAt" timestamptz, "firstTokenAt" timestamptz, tokens integer)
    on conflict (call_id) do update
    set engine = excluded.engine, first_token_at = excluded.first_token_at, tokens = excluded.tokens, seen_at = now()`);
}

/** Removes calls that have ended, and the rows that a dead gateway left an hour ago. */
export async function endLongCalls(db: Database, callIds: readonly string[]): Promise<void> {
  await db.execute(sql`
    delete from ${longCalls}
    where call_id in (select value::uuid from json_array_elements_text(${JSON.stringify(callIds)}::json)) or seen_at < now() - interval '1 hour'`);
}
