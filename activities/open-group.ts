import { and, eq } from 'drizzle-orm';
import { groups, iterations } from '../store/schema.ts';
import type { Deps } from './deps.ts';
import type { GroupPlan } from './group-plan.ts';
import { readRun } from './read-run.ts';
import { requireOpenTake } from './require-open-take.ts';

export type GroupLimits = { maxAttempts: number; trialSeconds: number; groupSeconds: number };

/** Writes the group's row. A group of a superseded take is refused: it has nothing left to do. */
export const openGroup = (deps: Deps) => async (plan: GroupPlan): Promise<GroupLimits> => {
  const { id, runId, kind, iteration, take, ordinal, task, policyVersion } = plan;
  if (iteration !== null && take !== null) {
    const [row] = await deps.db
      .select({ status: iterations.status })
      .from(iterations)
      .where(and(eq(iterations.runId, runId), eq(iterations.iteration, iteration), eq(iterations.take, take)));
    requireOpenTake(row, id);
  }
  await deps.db
    .insert(groups)
    .values({ id, runId, kind, iteration, take, ordinal, task, policyVersion })
    .onConflictDoUpdate({ target: groups.id, set: { endedAt: null } });
  const config = await readRun(deps.db, runId);
  return { maxAttempts: config.max_attempts, trialSeconds: config.deadlines.trial, groupSeconds: config.deadlines.group };
};
