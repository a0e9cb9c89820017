import { and, eq, sql, type SQL } from 'drizzle-orm';
import { engineWait, usualOf, type EngineWait, type TimedCall } from '../../core/engine-wait.ts';
import type { Database } from '../database.ts';
import { calls, longCalls, trials } from '../schema.ts';
import { isUnderWay } from './long-calls.ts';

/** A row of a gateway that is dead is not seen any more. */
const IS_SEEN = sql`seen_at > now() - interval '30 seconds'`;
/** A call that took no longer than this is not looked at. */
const LONG = sql`interval '5 seconds'`;
/** The calls of others that are read: those that ran beside a long one, and the latest, which show what is usual. */
const [MOST_BESIDE, SAMPLE] = [20_000, 400];

type Kind = 'own' | 'beside' | 'sample';
type Row = { kind: Kind; latest: string } & Record<keyof TimedCall, unknown>;

/**
 * Returns how long an attempt has waited for its engine until now, in calls that took longer than some seconds, or in those of them that
 * began at a time or later. Reads of other trials only those that run, or ended since it began.
 */
export async function readEngineWait(
  db: Database,
  { trialId, attempt, since }: { trialId: string; attempt: number; since?: Date },
): Promise<EngineWait> {
  const isRead = since ? sql`call.started_at >= ${since.toISOString()}::timestamptz` : sql`true`;
  const { rows } = await db.execute<Row>(sql`
    with own as (select id, run_id, attempt_opened_at as since from ${trials} where id = ${trialId}),
    others as (
      select other.id, other.attempt from ${trials} other join own on other.run_id = own.run_id
      where other.id <> own.id and coalesce(other.sealed_at, now()) >= own.since
    ),
    own_ended as (
      select * from ${calls} call where call.trial_id = ${trialId} and call.attempt = ${attempt} and call.choice_of is null
        and call.ended_at - call.started_at > ${LONG} and ${isRead}
    ),
    live as (select * from ${longCalls} live where ${IS_SEEN} and ${isUnderWay(sql`live.call_id`)}),
    own_live as (select * from live call where trial_id = ${trialId} and attempt = ${attempt} and ${isRead}),
    long as (
      select started_at, ended_at from own_ended union all select started_at, now() from own_live
    ),
    ended as (
      select call.* from others join ${calls} call on call.trial_id = others.id and call.attempt = others.attempt, own
      where call.choice_of is null and call.ended_at >= own.since
    ),
    beside as (
      select call.* from ended call
      where exists (select from long where call.started_at < long.ended_at and call.ended_at > long.started_at)
      order by call.ended_at desc limit ${MOST_BESIDE}
    ),
    sample as (select call.* from ended call where call.status = 'completed' order by call.ended_at desc limit ${SAMPLE}),
    own_sample as (
      select * from ${calls} call where call.trial_id = ${trialId} and call.attempt = ${attempt} and call.choice_of is null
        and call.status = 'completed' and not exists (select from sample) order by call.seq desc limit ${SAMPLE}
    ),
    each as (
      select 'own' as kind, ${endedColumns} from own_ended call
      union all select 'beside', ${endedColumns} from beside call
      union all select 'sample', ${endedColumns} from sample call
      union all select 'sample', ${endedColumns} from own_sample call
      union all select 'own', ${liveColumns} from own_live call
      union all select 'beside', ${liveColumns} from live call where trial_id <> ${trialId} and run_id = (select run_id from own)
    )
    select *, extract(epoch from now()) as latest from each`);
  const of = (wanted: Kind): TimedCall[] => rows.flatMap((row) => (row.kind === wanted ? [timedCall(row)] : []));
  const own = of('own');
  if (own.length === 0) return { seconds: 0, isShared: false };
  return engineWait(own, { others: of('beside'), usual: usualOf(of('sample')), now: Number(rows[0]?.latest) });
}

/** True when a call of the attempt took longer than some seconds, so that its waits are worth reading. */
export async function hadLongCall(
  db: Database,
  { trialId, attempt }: { trialId: string; attempt: number },
): Promise<boolean> {
  const ofAttempt = and(eq(calls.trialId, trialId), eq(calls.attempt, attempt));
  const isLong = sql`${calls.endedAt} - ${calls.startedAt} > ${LONG}`;
  return (await db.select({ id: calls.id }).from(calls).where(and(ofAttempt, isLong)).limit(1)).length > 0;
}

const endedColumns: SQL = sql`call.engine, extract(epoch from call.started_at) as start, extract(epoch from call.first_token_at) as first,
  extract(epoch from call.ended_at) as "end", coalesce(length(call.completion_token_ids) / 4, 0) as tokens, call.stream,
  coalesce(call.sampling ->> 'constrained_decoding' = 'enforce', false) as "isConstrained"`;
const liveColumns: SQL = sql`call.engine, extract(epoch from call.started_at) as start, extract(epoch from call.first_token_at) as first,
  null::numeric as "end", call.tokens, call.stream, call.constrained as "isConstrained"`;

const timedCall = ({ engine, start, first, end, tokens, stream, isConstrained }: Row): TimedCall => ({
  engine: typeof engine === 'string' ? engine : null,
  start: Number(start),
  first: first === null ? null : Number(first),
  end: end === null ? null : Number(end),
  tokens: Number(tokens),
  stream: stream === true,
  isConstrained: isConstrained === true,
});
