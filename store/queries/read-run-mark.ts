import { sql } from 'drizzle-orm';
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
  const { rows } = await db.execute<{ mark: string }>(sql`
    with r as materialized (select * from ${runs} where id = ${runId}),
    near as materialized (
      select g.* from ${groups} g join r on g.run_id = r.id
      where g.iteration >= (
          select max(i.iteration) - coalesce((r.config ->> 'max_staleness')::int, 0) - 1
          from ${iterations} i where i.run_id = r.id)
        or (g.iteration is null and (g.ended_at is null or g.ended_at > now() - interval '10 minutes')))
    select md5(row(
      r.status, r.reason, r.resumed_at, r.ended_at, r.config::text,
      (select (count(*), count(i.ended_at), count(i.trained_version), max(i.opened_at), max(i.ended_at))
        from ${iterations} i where i.run_id = r.id),
      (select count(*) from ${batches} b where b.run_id = r.id),
      (select (count(*), count(v.pruned_at)) from ${policyVersions} v where v.run_id = r.id),
      (select (count(*), max(p.confirmed_at)) from ${publications} p where p.run_id = r.id),
      (select count(*) from ${quarantinedTasks} q where q.run_id = r.id),
      (select (count(*), count(near.ended_at), count(near.claimed_at), count(near.dropped), max(near.deadline_at)) from near),
      (select (count(*), sum(t.attempt), sum(t.recorded), sum(t.used_tokens), count(t.outcome), count(t.completed_at),
          max(t.completed_at), max(t.sealed_at), max(t.attempt_opened_at))
        from near join ${trials} t on t.group_id = near.id)
    )::text) as mark from r`);
  return rows[0]?.mark ?? null;
}
