import { sql, type SQL } from 'drizzle-orm';
import type { Database } from '../database.ts';
import {
  batches,
  groups,
  iterations,
  policyVersions,
  publications,
  quarantinedTasks,
  runs,
  trials,
} from '../schema.ts';

/**
 * Returns a mark of a run's state, which is another one when something has changed that the run's views show; null if there is no such run.
 * Of its trials it counts those that may still change: of the newest iterations, as far back as `max_staleness` reaches, and of evaluations
 * that are open or ended a short while ago.
 */
export async function readRunMark(db: Database, runId: string): Promise<string | null> {
  const { rows } = await db.execute<{ mark: string }>(markOf(runId));
  return rows[0]?.mark ?? null;
}

/** Each part is asked once and reads only the rows that it counts: PostgreSQL expects far more groups than there are. */
export const markOf = (runId: string): SQL => sql`
    with r as materialized (select * from ${runs} where id = ${runId}),
    edge as materialized (
      select max(i.iteration) - coalesce(max((r.config ->> 'max_staleness')::int), 0) - 1 as least
      from r join ${iterations} i on i.run_id = r.id),
    near as materialized (
      select g.* from ${groups} g where g.run_id = ${runId} and g.iteration >= (select least from edge)
      union all
      select g.* from ${groups} g
      where g.run_id = ${runId} and g.iteration is null
        and (g.ended_at is null or g.ended_at > now() - interval '10 minutes'))
    select md5(row(
      r.status, r.reason, r.resumed_at, r.ended_at, r.paused_until, r.config::text,
      (select (count(*), count(i.ended_at), count(i.trained_version), max(i.opened_at), max(i.ended_at))
        from ${iterations} i where i.run_id = r.id),
      (select count(*) from ${batches} b where b.run_id = r.id),
      (select (count(*), count(v.pruned_at)) from ${policyVersions} v where v.run_id = r.id),
      (select (count(*), max(p.confirmed_at)) from ${publications} p where p.run_id = r.id),
      (select count(*) from ${quarantinedTasks} q where q.run_id = r.id),
      (select (count(*), count(near.ended_at), count(near.claimed_at), count(near.dropped), sum(extract(epoch from near.deadline_at))) from near),
      (select (count(*), sum(t.attempt), sum(t.recorded), sum(t.used_tokens), count(t.outcome), count(t.completed_at),
          max(t.completed_at), max(t.sealed_at), max(t.attempt_opened_at))
        from near cross join lateral (select * from ${trials} t where t.group_id = near.id offset 0) t)
    )::text) as mark from r`;
