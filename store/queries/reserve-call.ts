import { sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { trials } from '../schema.ts';
import { LEASE_SECONDS } from './calls-under-way.ts';

export type Reserving = {
  trialId: string;
  attempt: number;
  callId: string;
  /** How many replies the call asks for: each needs a token at least. */
  replies: number;
  /** How many tokens it may sample by its own limits; null without any. */
  tokens: number | null;
};

const until = `extract(epoch from clock_timestamp()) + ${LEASE_SECONDS}`;

/** One statement, so that no other comes in between: it waits for the trial's row, and all it reads is of that row. */
const reserve = {
  name: 'reserve_call',
  text: `
with trial as materialized (
  select id, used_calls, used_tokens, coalesce(reserved, '{}') as reserved, (budgets->>'calls')::bigint as calls, (budgets->>'tokens')::bigint as tokens
  from trials where id = $1 and attempt = $2 and status = 'created' for no key update
), others as materialized (
  select coalesce(jsonb_object_agg(key, value), '{}') as reserved, count(*) as calls, coalesce(sum((value->>'tokens')::bigint), 0) as tokens
  from trial, jsonb_each(trial.reserved) where key <> $3 and (value->>'until')::float8 > extract(epoch from clock_timestamp())
), granted as materialized (
  select trial.id, others.reserved, case when trial.tokens is not null then least($5::bigint, trial.tokens - used_tokens) end as tokens,
    trial.tokens - used_tokens - others.tokens as free
  from trial, others where coalesce(used_calls + others.calls < trial.calls, true)
)
update trials set reserved = granted.reserved || jsonb_build_object($3::text, jsonb_build_object('tokens', coalesce(granted.tokens, 0), 'until', ${until}))
from granted where trials.id = granted.id and coalesce(granted.tokens between $4::bigint and free, true)
returning granted.tokens`,
};

/**
 * Takes a call's part of its trial's budgets, so that no other call can have it, of whichever gateway: `tokens` is how many it may
 * sample, null without a budget of them. It is kept until the call is recorded, or until nobody has renewed it for
 * `LEASE_SECONDS`. Null: the budgets, less what others have reserved, have no room for it, or the attempt is closed.
 * Repeating it is harmless.
 */
export async function reserveCall(db: Database, { trialId, attempt, callId, replies, tokens }: Reserving): Promise<{ tokens: number | null } | null> {
  const { rows: [row] } = await db.$client.query<{ tokens: string | null }>({ ...reserve, values: [trialId, attempt, callId, replies, tokens] });
  return row ? { tokens: row.tokens === null ? null : Number(row.tokens) } : null;
}

export async function renewReservation(db: Database, { trialId, callId }: Pick<Reserving, 'trialId' | 'callId'>): Promise<void> {
  const renewed = sql`jsonb_set(${trials.reserved}, array[${callId}, 'until'], to_jsonb(${sql.raw(until)}))`;
  await db.update(trials).set({ reserved: renewed }).where(sql`${trials.id} = ${trialId} and ${trials.reserved} ? ${callId}`);
}
