import { and, eq, sql, type SQL } from 'drizzle-orm';
import { engineWait, type EngineWait, type TimedCall } from '../../core/engine-wait.ts';
import type { Database } from '../database.ts';
import { calls, longCalls, trials } from '../schema.ts';

/** A row of a gateway that is dead is not seen any more. */
const IS_SEEN = sql`seen_at > now() - interval '30 seconds'`;
/** The most calls of others that are read, the latest first. */
const MOST_OTHERS = 5000;
/** The calls of which the median is taken, and the tokens that one has at least. */
const [SAMPLE, LEAST_TOKENS] = [400, 4];

type Row = { own: boolean; latest: string } & Record<keyof TimedCall, unknown>;

/** Returns how long an attempt has waited for its engine until now. Reads of other trials only those that run, or ended since it began. */
export async function readEngineWait(
  db: Database,
  { trialId, attempt }: { trialId: string; attempt: number },
): Promise<EngineWait> {
  const { rows } = await db.execute<Row>(sql`
    with own as (select id, run_id, attempt_opened_at as since from ${trials} where id = ${trialId}),
    others as (
      select other.id, other.attempt from ${trials} other join own on other.run_id = own.run_id
      where other.id <> own.id and coalesce(other.sealed_at, now()) >= own.since
    ),
    ended as (
      select true as own, ${columnsOf(sql`call`)} from ${calls} call where call.trial_id = ${trialId} and call.attempt = ${attempt} and call.choice_of is null
      union all
      (select false, ${columnsOf(sql`call`)} from others join ${calls} call on call.trial_id = others.id and call.attempt = others.attempt, own
        where call.choice_of is null and call.ended_at >= own.since order by call.ended_at desc limit ${MOST_OTHERS})
    ),
    under_way as (
      select trial_id = ${trialId} as own, engine, extract(epoch from started_at) as start, extract(epoch from first_token_at) as first,
        null::numeric as "end", tokens, stream, constrained as "isConstrained"
      from ${longCalls}
      where ${IS_SEEN} and (trial_id = ${trialId} and attempt = ${attempt} or trial_id <> ${trialId} and run_id = (select run_id from own))
    )
    select *, extract(epoch from now()) as latest from (select * from ended union all select * from under_way) as each`);
  const timed = rows.map(({ own, ...row }) => ({ own, ...timedCall(row) }));
  return engineWait(
    timed.filter(({ own }) => own),
    {
      others: timed.filter(({ own }) => !own),
      perToken: medianPerToken(timed),
      now: Number(rows[0]?.latest ?? 0),
    },
  );
}

/** True when a call of the attempt took longer than a few seconds, so that its waits are worth reading. */
export async function hadLongCall(
  db: Database,
  { trialId, attempt }: { trialId: string; attempt: number },
): Promise<boolean> {
  const ofAttempt = and(eq(calls.trialId, trialId), eq(calls.attempt, attempt));
  const isLong = sql`${calls.endedAt} - ${calls.startedAt} > interval '5 seconds'`;
  return (await db.select({ id: calls.id }).from(calls).where(and(ofAttempt, isLong)).limit(1)).length > 0;
}

const columnsOf = (call: SQL): SQL => sql`${call}.engine, extract(epoch from ${call}.started_at) as start,
  extract(epoch from ${call}.first_token_at) as first, extract(epoch from ${call}.ended_at) as "end",
  coalesce(length(${call}.completion_token_ids) / 4, 0) as tokens, ${call}.stream,
  coalesce(${call}.sampling ->> 'constrained_decoding' = 'enforce', false) as "isConstrained"`;

const timedCall = ({ engine, start, first, end, tokens, stream, isConstrained }: Omit<Row, 'own'>): TimedCall => ({
  engine: typeof engine === 'string' ? engine : null,
  start: Number(start),
  first: first === null ? null : Number(first),
  end: end === null ? null : Number(end),
  tokens: Number(tokens),
  stream: stream === true,
  isConstrained: isConstrained === true,
});

/** Returns the median time of a token, in seconds; null when no call was completed with enough of them. */
function medianPerToken(timed: readonly TimedCall[]): number | null {
  const times = timed
    .filter((call) => call.end !== null && call.tokens >= LEAST_TOKENS)
    .slice(0, SAMPLE)
    .map(({ end, start, first, stream, tokens }) => ((end ?? 0) - (stream ? (first ?? start) : start)) / tokens)
    .toSorted((a, b) => a - b);
  return times[Math.floor(times.length / 2)] ?? null;
}
