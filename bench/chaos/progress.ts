import { and, eq, isNotNull, notInArray } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import {
  attempts,
  batches,
  groups,
  iterations,
  policyVersions,
  publications,
  runs,
  trials,
} from '../../store/schema.ts';

/**
 * Returns the times at which the run finished something, in milliseconds since 1970, in order: a trial's valid attempt, a group, a
 * batch, a train step, a replica's publication, an iteration, or itself.
 */
export async function progressOf(db: Database, runId: string): Promise<number[]> {
  const times = await Promise.all([
    db
      .select({ at: attempts.endedAt })
      .from(attempts)
      .innerJoin(trials, eq(trials.id, attempts.trialId))
      .where(
        and(
          eq(trials.runId, runId),
          isNotNull(attempts.outcome),
          notInArray(attempts.outcome, ['infra_error', 'cancelled']),
        ),
      ),
    db.select({ at: groups.endedAt }).from(groups).where(eq(groups.runId, runId)),
    db.select({ at: batches.createdAt }).from(batches).where(eq(batches.runId, runId)),
    db.select({ at: policyVersions.createdAt }).from(policyVersions).where(eq(policyVersions.runId, runId)),
    db.select({ at: publications.confirmedAt }).from(publications).where(eq(publications.runId, runId)),
    db.select({ at: iterations.endedAt }).from(iterations).where(eq(iterations.runId, runId)),
    db.select({ at: runs.endedAt }).from(runs).where(eq(runs.id, runId)),
  ]);
  return times
    .flat()
    .flatMap(({ at }) => at?.getTime() ?? [])
    .toSorted((a, b) => a - b);
}
