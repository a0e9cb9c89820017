import { asc, gt, sql, type SQL } from 'drizzle-orm';
import { UNCLAIMED_TASK } from '../../core/run-config/rollouts.ts';
import type { Database } from '../database.ts';
import {
  attempts,
  calls,
  groups,
  iterations,
  longCalls,
  poolWaits,
  publications,
  replicas,
  runs,
  trials,
} from '../schema.ts';
import type { RunStatus } from '../schema.ts';

/** What the record has of a replica. */
export type DeploymentEngine = {
  row: typeof replicas.$inferSelect;
  /** The version of its run that it confirmed last. Times are in seconds since the epoch. */
  confirmed: { version: number; at: number } | null;
  /** True when it is out of rotation and another replica is in rotation with its version. */
  isBehind: boolean;
  /** The trials under way whose last recorded call it answered. */
  trials: number;
  /** Its calls that have been under way for several seconds, at all gateways. */
  longCalls: number;
  /** The start of the first of them. */
  longestCallAt: number | null;
};
/** The work of a run under way. */
export type DeploymentRun = {
  runId: string;
  status: RunStatus;
  reason: string | null;
  /** The time since which it waits for engines that another run has, in seconds since the epoch. */
  waitsSince: number | null;
  openGroups: number;
  /** Open groups that no outside program has claimed. They and their trials are in no other number. */
  unclaimed: number;
  /** Trials of open groups that no attempt was opened for. */
  unopened: number;
  underWay: number;
  verifying: number;
  betweenAttempts: number;
  /** Trials under way whose group has ended. They are in `underWay` too. */
  stragglers: number;
  oldest: { trialId: string; openedAt: number } | null;
};
/** An attempt whose sandbox a host opens or has. */
export type HostSandbox = {
  trialId: string;
  attempt: number;
  runId: string;
  openedAt: number;
  /** True when it takes no more calls. */
  isVerifying: boolean;
};
/** What a host does and did for the newest iterations of the runs under way. */
export type DeploymentHost = {
  host: string;
  /** The attempts that ended there. */
  attempts: number;
  lost: number;
  lastAt: number | null;
  underWay: number;
  /** Some of those under way, the oldest first. */
  sandboxes: HostSandbox[];
};
export type DeploymentRecord = {
  engines: DeploymentEngine[];
  runs: DeploymentRun[];
  hosts: DeploymentHost[];
  /** PostgreSQL's time. */
  now: number;
};

/** The most trials under way whose engines are looked up. */
const MOST_TRIALS = 10_000;
/** The most sandboxes of a host that are named. */
const MOST_SANDBOXES = 20;

const epoch = (at: SQL): SQL => sql`extract(epoch from ${at})::float8`;

/** The groups of runs under way that may be open or have stragglers: of an evaluation, or young enough for the newest iteration. */
const NEAR = sql`near as materialized (
  select g.id, g.run_id, g.size, g.ended_at, g.claim is null and g.task = ${UNCLAIMED_TASK} as is_unclaimed
  from ${groups} g join ${runs} r on r.id = g.run_id
  where r.status in ('running', 'blocked') and (g.ended_at is null or g.ended_at > now() - interval '1 day') and (
    g.iteration is null or (g.iteration >= (
      select max(i.iteration) - coalesce((r.config ->> 'max_staleness')::int, 0) - 1 from ${iterations} i where i.run_id = r.id
    ) and exists (
      select from ${iterations} i
      where i.run_id = g.run_id and i.iteration = g.iteration and i.take = g.take and i.status <> 'superseded'))))`;

/** Their trials, with the last attempt of each. */
const TRIED = sql`tried as materialized (
  select t.id, t.attempt, t.run_id, t.status, near.ended_at as group_ended_at, a.opened_at, a.ended_at, a.host,
    t.outcome is null and t.status <> 'deleted' as is_open
  from near join ${trials} t on t.group_id = near.id join ${attempts} a on a.trial_id = t.id and a.attempt = t.attempt)`;

/** Returns what the record has of the engines, and of the work under way and its hosts. Sessions outside any run are not in it. */
export async function readDeployment(db: Database): Promise<DeploymentRecord> {
  const rows = await db.select().from(replicas).orderBy(asc(replicas.url));
  const { rows: confirmed } = await db.execute<{ replica: string; version: number; at: number }>(sql`
    select distinct on (p.replica) p.replica, p.version, ${epoch(sql`p.confirmed_at`)} as at
    from ${publications} p join ${replicas} r on r.run_id = p.run_id and r.url = p.replica
    order by p.replica, p.confirmed_at desc`);
  const { rows: placed } = await db.execute<{ engine: string; trials: number }>(sql`
    with ${NEAR}, ${TRIED},
    live as (select id, attempt from tried where is_open and ended_at is null and status = 'created' limit ${MOST_TRIALS})
    select last.engine, count(*)::int as trials
    from live cross join lateral (
      select c.engine from ${calls} c where c.trial_id = live.id and c.attempt = live.attempt order by c.seq desc limit 1) last
    where last.engine is not null
    group by last.engine`);
  const long = await db
    .select({
      engine: longCalls.engine,
      calls: sql<number>`count(*)::int`,
      since: sql<number>`${epoch(sql`min(${longCalls.startedAt})`)}`,
    })
    .from(longCalls)
    // A row of a gateway that is dead is not seen any more.
    .where(gt(longCalls.seenAt, sql`now() - interval '30 seconds'`))
    .groupBy(longCalls.engine);
  const confirmedBy = new Map(confirmed.map(({ replica, ...last }) => [replica, last]));
  // No times are compared: several clocks write them, and an engine that joins a run has a later one than what the others confirmed.
  const served = new Set(rows.filter(({ inRotation }) => inRotation).map(({ weightVersion }) => weightVersion));
  const trialsOf = new Map(placed.map(({ engine, trials: many }) => [engine, many]));
  const longOf = new Map(long.map((row) => [row.engine, row]));
  const { rows: underWay } = await db.execute<DeploymentRun>(WORK);
  const { rows: hosts } = await db.execute<DeploymentHost>(HOSTS);
  const { rows: times } = await db.execute<{ now: number }>(sql`select ${epoch(sql`now()`)} as now`);
  return {
    engines: rows.map((row) => ({
      row,
      confirmed: confirmedBy.get(row.url) ?? null,
      isBehind: !row.inRotation && row.weightVersion !== null && served.has(row.weightVersion),
      trials: trialsOf.get(row.url) ?? 0,
      longCalls: longOf.get(row.url)?.calls ?? 0,
      longestCallAt: longOf.get(row.url)?.since ?? null,
    })),
    runs: underWay,
    hosts,
    now: times[0]?.now ?? 0,
  };
}

const WORK = sql`
  with ${NEAR}, ${TRIED},
  grouped as (
    select run_id,
      count(*) filter (where ended_at is null and not is_unclaimed)::int as open_groups,
      count(*) filter (where ended_at is null and is_unclaimed)::int as unclaimed,
      coalesce(sum(size) filter (where ended_at is null and not is_unclaimed), 0)::int as places
    from near group by run_id),
  counted as (
    select run_id,
      count(*) filter (where group_ended_at is null)::int as opened,
      count(*) filter (where is_open and ended_at is null)::int as under_way,
      count(*) filter (where is_open and ended_at is null and status = 'completed')::int as verifying,
      count(*) filter (where is_open and ended_at is not null and group_ended_at is null)::int as between_attempts,
      count(*) filter (where is_open and ended_at is null and group_ended_at is not null)::int as stragglers
    from tried group by run_id)
  select r.id as "runId", r.status, r.reason,
    (select ${epoch(sql`w.since`)} from ${poolWaits} w where w.run_id = r.id and w.seen_at > now() - interval '30 seconds') as "waitsSince",
    coalesce(grouped.open_groups, 0) as "openGroups", coalesce(grouped.unclaimed, 0) as unclaimed,
    greatest(coalesce(grouped.places, 0) - coalesce(counted.opened, 0), 0) as unopened,
    coalesce(counted.under_way, 0) as "underWay", coalesce(counted.verifying, 0) as verifying,
    coalesce(counted.between_attempts, 0) as "betweenAttempts", coalesce(counted.stragglers, 0) as stragglers,
    (select json_build_object('trialId', id, 'openedAt', ${epoch(sql`opened_at`)}) from tried
      where tried.run_id = r.id and is_open and ended_at is null order by opened_at, id limit 1) as oldest
  from ${runs} r left join grouped on grouped.run_id = r.id left join counted on counted.run_id = r.id
  where r.status in ('running', 'blocked')
  order by r.created_at desc, r.id desc`;

const HOSTS = sql`
  with ${NEAR}, ${TRIED},
  ended as (
    select a.host, count(*)::int as attempts,
      count(*) filter (where a.outcome = 'infra_error' and a.evidence = 'host')::int as lost,
      ${epoch(sql`max(a.ended_at)`)} as last_at
    from near join ${trials} t on t.group_id = near.id join ${attempts} a on a.trial_id = t.id
    where a.host is not null and a.ended_at is not null
    group by a.host),
  live as (
    select *, row_number() over (partition by host order by opened_at, id) as place
    from tried where is_open and ended_at is null and host is not null),
  opened as (
    select host, count(*)::int as under_way,
      json_agg(json_build_object('trialId', id, 'attempt', attempt, 'runId', run_id,
        'openedAt', ${epoch(sql`opened_at`)}, 'isVerifying', status = 'completed') order by place)
        filter (where place <= ${MOST_SANDBOXES}) as sandboxes
    from live group by host)
  select host, coalesce(ended.attempts, 0) as attempts, coalesce(ended.lost, 0) as lost, ended.last_at as "lastAt",
    coalesce(opened.under_way, 0) as "underWay", coalesce(opened.sandboxes, '[]'::json) as sandboxes
  from ended full join opened using (host)
  order by host`;
