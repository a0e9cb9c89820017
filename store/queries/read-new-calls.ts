import { sql } from 'drizzle-orm';
import { CALLS_NOT_SHOWN } from '../calls/calls-not-shown.ts';
import type { Database } from '../database.ts';
import { calls, type CallStatus } from '../schema.ts';

/** A call as it is stored, with its request shortened (`calls/shorten.ts`). `request` is null for a call that the reader already knows. */
export type NewCall = {
  id: string;
  seq: number;
  baseId: string | null;
  status: CallStatus;
  request: Uint8Array | null;
  response: Uint8Array | null;
  /** The number of sampled tokens; null when these or the prompt's ids are unknown. */
  tokens: number | null;
  isShownInPart: boolean;
};
type Row = Omit<NewCall, 'seq'> & { seq: string };
export type After = { trialId: string; attempt: number; after: number; known: readonly string[] };

/** Reads the calls of an attempt that were committed after the one with number `after`, without their ids, in the order of their commits. */
export async function readNewCalls(db: Database, { trialId, attempt, after, known }: After): Promise<NewCall[]> {
  const isKnown = sql`id = any(${sql.param([...known])}::uuid[])`;
  const { rows } = await db.execute<Row>(sql`
    select id, seq, base_id as "baseId", status, case when not ${isKnown} then request end as request, case when not ${isKnown} then response end as response,
      case when prompt_token_ids is not null then length(completion_token_ids) / 4 end as tokens,
      coalesce(untrainable = ${CALLS_NOT_SHOWN}, false) as "isShownInPart"
    from ${calls} where trial_id = ${trialId} and attempt = ${attempt} and seq > ${after} order by seq`);
  return rows.map(({ seq, ...row }) => ({ ...row, seq: Number(seq) }));
}
