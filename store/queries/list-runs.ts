import { desc, eq, inArray, lt, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { batches, iterations, runs } from '../schema.ts';

/** The most iterations whose rewards a list of runs shows. */
const MOST_REWARDS = 100;

type RunRow = typeof runs.$inferSelect;
export type ListedRun = Pick<
  RunRow,
  'id' | 'status' | 'reason' | 'createdAt' | 'endedAt' | 'forkedFrom' | 'rescores'
> & {
  /** The number of the newest iteration; null before the first. */
  iteration: number | null;
  /** The mean rewards of the newest batches, the oldest first. They are read from the batches, because a run may have 100,000 trials. */
  rewards: number[];
};

/** Returns a page of runs, the newest first. `after` is the id of the last run of the page before. */
export async function listRuns(
  db: Database,
  { after, limit }: { after?: string; limit: number },
): Promise<ListedRun[]> {
  const seen = sql`(select seen.created_at, seen.id from runs seen where seen.id = ${after ?? ''})`;
  const page = await db
    .select({
      id: runs.id,
      status: runs.status,
      reason: runs.reason,
      createdAt: runs.createdAt,
      endedAt: runs.endedAt,
      forkedFrom: runs.forkedFrom,
      rescores: runs.rescores,
    })
    .from(runs)
    .where(after === undefined ? undefined : lt(sql`(${runs.createdAt}, ${runs.id})`, seen))
    .orderBy(desc(runs.createdAt), desc(runs.id))
    .limit(limit);
  const ids = page.map(({ id }) => id);
  if (ids.length === 0) return [];
  const newest = await db
    .select({ runId: iterations.runId, iteration: sql<number>`max(${iterations.iteration})` })
    .from(iterations)
    .where(inArray(iterations.runId, ids))
    .groupBy(iterations.runId);
  const means = await db
    .select({
      runId: batches.runId,
      iteration: batches.iteration,
      take: batches.take,
      mean: sql<number | null>`(${batches.metrics} ->> 'used_reward')::float8`,
    })
    .from(batches)
    .innerJoin(
      sql`(select run_id, max(iteration) as last from batches where ${inArray(sql`run_id`, ids)} group by run_id) newest`,
      eq(sql`newest.run_id`, batches.runId),
    )
    .where(sql`${batches.iteration} > newest.last - ${MOST_REWARDS}`)
    .orderBy(batches.runId, batches.iteration, batches.take);
  const meansOf = Map.groupBy(means, ({ runId }) => runId);
  const newestOf = new Map(newest.map(({ runId, iteration }) => [runId, iteration]));
  return page.map((run) => {
    // The last take of an iteration takes the place of those before.
    const byIteration = new Map((meansOf.get(run.id) ?? []).map(({ iteration, mean }) => [iteration, mean]));
    return {
      ...run,
      iteration: newestOf.get(run.id) ?? null,
      rewards: [...byIteration.values()].filter((mean) => mean !== null),
    };
  });
}
