import { and, asc, eq, gte, lte, sql } from 'drizzle-orm';
import { LEAST_PASS } from '../../core/pass.ts';
import type { Database } from '../database.ts';
import { batches, groups, iterations, policyVersions, trials, type Outcome } from '../schema.ts';
import { shownOutcome } from './shown-outcome.ts';
import { isSameTake } from './takes.ts';
import { weightedRewardOf } from './weighted-reward.ts';

export type TakeRow = typeof iterations.$inferSelect & {
  skipped: string | null;
  /** The metrics of its train step and of its batch; empty before them. */
  metrics: Record<string, number>;
  batchMetrics: Record<string, number>;
  groups: number;
  dropped: number;
  /** The number of groups whose trials all have the same reward. */
  equal: number;
  /** The number of groups without any reward. */
  unrewarded: number;
  trials: Partial<Record<Outcome | 'open', number>>;
  /** The weighted rewards of its trials; null without any. `std` is that of the population. */
  reward: { mean: number; median: number; std: number; count: number; passed: number } | null;
};

type Wanted = {
  from: number;
  /** The last iteration; absent: the newest. */
  to?: number;
  limit: number;
  weights: Record<string, number>;
  /** True when the run has ended: no trial of it is under way then. */
  hasEnded: boolean;
};

/** Returns a run's takes from iteration `from` on, in their order, with the rewards of their own trials. */
export async function readIterations(db: Database, runId: string, wanted: Wanted): Promise<TakeRow[]> {
  const rows = await db
    .select({
      take: iterations,
      skipped: policyVersions.skipped,
      metrics: policyVersions.metrics,
      batch: batches.metrics,
    })
    .from(iterations)
    .leftJoin(policyVersions, isSameTake(policyVersions, iterations))
    .leftJoin(batches, isSameTake(batches, iterations))
    .where(
      and(
        eq(iterations.runId, runId),
        gte(iterations.iteration, wanted.from),
        wanted.to === undefined ? undefined : lte(iterations.iteration, wanted.to),
      ),
    )
    .orderBy(asc(iterations.iteration), asc(iterations.take))
    .limit(wanted.limit);
  const last = rows.at(-1)?.take.iteration;
  if (last === undefined) return [];
  const counted = await countTrials(db, runId, { ...wanted, last });
  const grouped = await db
    .select({
      iteration: groups.iteration,
      take: groups.take,
      groups: sql<number>`count(*)::int`,
      dropped: sql<number>`count(${groups.dropped})::int`,
    })
    .from(groups)
    .where(and(eq(groups.runId, runId), gte(groups.iteration, wanted.from), lte(groups.iteration, last)))
    .groupBy(groups.iteration, groups.take);
  const nameOf = (row: { iteration: number | null; take: number | null }): string => `${row.iteration}.${row.take}`;
  const groupsOf = new Map(grouped.map((row) => [nameOf(row), row]));
  const trialsOf = new Map(counted.map((row) => [nameOf(row), row]));
  return rows.map(({ take, skipped, metrics, batch }) => {
    const ofGroups = groupsOf.get(nameOf(take));
    const ofTrials = trialsOf.get(nameOf(take));
    return {
      ...take,
      skipped,
      metrics: metrics ?? {},
      batchMetrics: batch ?? {},
      groups: ofGroups?.groups ?? 0,
      dropped: ofGroups?.dropped ?? 0,
      equal: ofTrials?.equal ?? 0,
      unrewarded: (ofGroups?.groups ?? 0) - (ofTrials?.rewarded ?? 0),
      trials: ofTrials?.trials ?? {},
      reward: ofTrials?.reward ?? null,
    };
  });
}

type Counted = Pick<TakeRow, 'iteration' | 'take' | 'trials' | 'equal' | 'reward'> & { rewarded: number };

/** Counts the trials of takes in one statement, which computes the reward of each trial once. */
async function countTrials(db: Database, runId: string, { from, last, weights, hasEnded }: Wanted & { last: number }) {
  const { rows } = await db.execute<Counted>(sql`
    with ended as materialized (
      select ${groups.iteration}, ${groups.take}, ${groups.id} as group_id, coalesce(${shownOutcome()}, ${hasEnded ? 'cancelled' : 'open'}) as outcome,
        ${weightedRewardOf(weights)} as reward
      from ${groups} join ${trials} on ${trials.groupId} = ${groups.id}
      where ${groups.runId} = ${runId} and ${groups.iteration} between ${from} and ${last}
    ), outcomes as (
      select iteration, take, jsonb_object_agg(outcome, many) as trials
      from (select iteration, take, outcome, count(*) as many from ended group by 1, 2, 3) counted group by 1, 2
    ), equals as (
      select iteration, take, count(*) filter (where high = low) as equal, count(high) as rewarded
      from (select iteration, take, max(reward) as high, min(reward) as low from ended group by iteration, take, group_id) ranges group by 1, 2
    ), rewards as (
      select iteration, take, avg(reward) as mean, percentile_cont(0.5) within group (order by reward) as median,
        stddev_pop(reward) as std, count(*) as count, count(*) filter (where reward >= ${LEAST_PASS}::float8) as passed
      from ended where reward is not null group by 1, 2
    )
    select outcomes.iteration, outcomes.take, trials, equal::int, rewarded::int,
      case when mean is not null then json_build_object('mean', mean, 'median', median, 'std', std, 'count', count, 'passed', passed) end as reward
    from outcomes join equals using (iteration, take) left join rewards using (iteration, take)`);
  return rows;
}
