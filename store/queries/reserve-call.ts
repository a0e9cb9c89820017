import type { Database } from '../database.ts';
import { LEASE_SECONDS } from './calls-under-way.ts';

export type ReservationRequest = {
  trialId: string;
  attempt: number;
  callId: string;
  /** The number of replies that the call asks for. Each needs at least one token. */
  replies: number;
  /** The number of tokens that the call's own limits allow; null without a limit. */
  tokens: number | null;
};
type ReservationKey = Pick<ReservationRequest, 'trialId' | 'callId'>;

const until = `extract(epoch from clock_timestamp()) + ${LEASE_SECONDS}`;
/** Does not wait for the disk, so that the row's lock is short. A database that crashes loses reservations, and their calls are made again. */
const brief = `brief as materialized (select set_config('synchronous_commit', 'off', true))`;

/**
 * Reserves in one statement, so that no other reservation comes in between: it waits for the trial's row and reads only that row. It keeps
 * reservations that were not renewed in time, because their gateway may only be out of touch, unless this call needs their room.
 */
const reserve = {
  name: 'reserve_call',
  text: `
with ${brief}, trial as materialized (
  select id, coalesce(reserved, '{}') - $3::text as reserved, (budgets->>'calls')::bigint - used_calls as calls, (budgets->>'tokens')::bigint - used_tokens as tokens
  from trials, brief where id = $1 and attempt = $2 and status = 'created' for no key update of trials
), others as materialized (
  select key, value, (value->>'until')::float8 > extract(epoch from clock_timestamp()) as renewed from trial, jsonb_each(trial.reserved)
), kept as materialized (
  select drops, coalesce(jsonb_object_agg(key, value) filter (where key is not null), '{}') as reserved, count(key) as calls, coalesce(sum((value->>'tokens')::bigint), 0) as tokens
  from (values (false), (true)) as either(drops) left join others on renewed or not drops group by drops
), granted as materialized (
  select trial.id, kept.reserved, wish.tokens
  from trial, kept, lateral (select case when trial.tokens is not null then least($5::bigint, trial.tokens) end as tokens) as wish
  where coalesce(kept.calls < trial.calls, true) and coalesce(wish.tokens between $4::bigint and trial.tokens - kept.tokens, true)
  order by drops limit 1
)
update trials set reserved = granted.reserved || jsonb_build_object($3::text, jsonb_build_object('tokens', coalesce(granted.tokens, 0), 'until', ${until}))
from granted where trials.id = granted.id
returning granted.tokens`,
};

const renew = {
  name: 'renew_reservation',
  text: `with ${brief} update trials set reserved = jsonb_set(reserved, array[$2::text, 'until'], to_jsonb(${until})) from brief where id = $1 and reserved ? $2::text`,
};

const remove = {
  name: 'remove_reservation',
  text: `with ${brief} update trials set reserved = reserved - $2::text from brief where id = $1 and reserved ? $2::text`,
};

/**
 * Reserves a call's part of its trial's budgets for this call alone, across all gateways. Returns the number of tokens that the call may
 * sample, null without a budget of tokens. The reservation stays until the call is recorded, or until another call needs its room and it
 * has not been renewed for `LEASE_SECONDS`. Returns null when the budgets have no room beside the other reservations, and when the attempt
 * is closed. Repeating it is harmless.
 */
export async function reserveCall(
  db: Database,
  { trialId, attempt, callId, replies, tokens }: ReservationRequest,
): Promise<{ tokens: number | null } | null> {
  const {
    rows: [row],
  } = await db.$client.query<{ tokens: string | null }>({
    ...reserve,
    values: [trialId, attempt, callId, replies, tokens],
  });
  return row ? { tokens: row.tokens === null ? null : Number(row.tokens) } : null;
}

export async function renewReservation(db: Database, { trialId, callId }: ReservationKey): Promise<void> {
  await db.$client.query({ ...renew, values: [trialId, callId] });
}

/** Releases the reservation of a call that will not be recorded. */
export async function removeReservation(db: Database, { trialId, callId }: ReservationKey): Promise<void> {
  await db.$client.query({ ...remove, values: [trialId, callId] });
}
