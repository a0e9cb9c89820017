import { sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { calls, longCalls, trials } from '../schema.ts';
import { isUnderWay } from './long-calls.ts';

export type EngineSpeed = {
  engine: string;
  /** The median of its calls of the last minutes, those under way for long among them: tokens a second of one call. Null: none is known. */
  tokens_per_second: number | null;
  /** The calls that have waited for their first token for several seconds, and for how many seconds the longest has. */
  waiting: number;
  longest_wait: number;
};

/** A reply that takes so many times longer than the median one waits. */
const TIMES_USUAL = 4;
/** Faster than any engine samples one reply: its tokens came at once (`core/engine-wait.ts`). */
const WHOLE_SECONDS_PER_TOKEN = 0.0005;
/** A shorter reply says little about the speed. */
const LEAST_TOKENS = 16;

/** Returns how fast each engine answers a run's calls. A call that no engine has yet counts for all of them. */
export async function readEngineSpeeds(db: Database, runId: string): Promise<EngineSpeed[]> {
  const { rows } = await db.execute<Record<keyof EngineSpeed, unknown>>(sql`
    with ended as (
      select call.engine, call.stream, length(call.completion_token_ids) / 4 as tokens, extract(epoch from call.ended_at - call.started_at) as seconds,
        -- A stream may come whole too, as where the engine's parser needs all of a reply.
        call.stream and extract(epoch from call.ended_at - call.first_token_at) >= length(call.completion_token_ids) / 4 * ${WHOLE_SECONDS_PER_TOKEN}::float8 as streamed,
        extract(epoch from call.ended_at - coalesce(call.first_token_at, call.started_at)) as after_first
      from ${trials} trial join ${calls} call on call.trial_id = trial.id and call.attempt = trial.attempt
      where trial.run_id = ${runId} and coalesce(trial.sealed_at, now()) > now() - interval '10 minutes' and call.status = 'completed'
        and call.ended_at > now() - interval '10 minutes'
    ),
    usual as (
      select coalesce(percentile_cont(0.5) within group (order by seconds) filter (where streamed is not true), 0) as seconds,
        coalesce(bool_and(streamed is not true) filter (where stream), false) as streams_whole
      from ended
    ),
    under_way as (
      select engine, tokens, extract(epoch from now() - coalesce(first_token_at, started_at)) as sampling,
        -- Whether a reply that is not streamed has begun is not known: it waits when it takes far longer than usual.
        case when first_token_at is not null then 0 when stream and not usual.streams_whole then extract(epoch from now() - started_at)
          else greatest(0, extract(epoch from now() - started_at) - ${TIMES_USUAL} * usual.seconds) end as waited
      from ${longCalls} live, usual where run_id = ${runId} and seen_at > now() - interval '30 seconds' and ${isUnderWay(sql`live.call_id`)}
    ),
    speeds as (
      select engine, tokens / greatest(case when streamed then after_first else seconds end, 0.001) as speed from ended where tokens >= ${LEAST_TOKENS}
      union all select engine, tokens / greatest(sampling, 0.001) from under_way where tokens > 0
    ),
    engines as (select engine from ended union select engine from under_way)
    select engine,
      (select percentile_cont(0.5) within group (order by speed) from speeds where speeds.engine = engines.engine) as tokens_per_second,
      (select count(*) from under_way where waited > 0 and coalesce(under_way.engine, engines.engine) = engines.engine) as waiting,
      (select coalesce(max(waited), 0) from under_way where coalesce(under_way.engine, engines.engine) = engines.engine) as longest_wait
    from engines where engine is not null order by engine`);
  return rows.map(({ engine, tokens_per_second: speed, waiting, longest_wait }) => ({
    engine: String(engine),
    tokens_per_second: speed === null ? null : Number(speed),
    waiting: Number(waiting),
    longest_wait: Number(longest_wait),
  }));
}
