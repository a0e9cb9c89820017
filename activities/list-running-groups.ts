import { and, eq, isNull, or, sql } from 'drizzle-orm';
import { attempts, groups, trials } from '../store/schema.ts';
import type { Deps } from './deps.ts';

/** Of groups whose workflows may run: those that have not ended, and those of which a straggler may run. */
export const mayRun = or(
  isNull(groups.endedAt),
  sql`exists (select 1 from ${trials} join ${attempts} on ${attempts.trialId} = ${trials.id} and ${attempts.attempt} = ${trials.attempt} where ${trials.groupId} = ${groups.id} and ${attempts.endedAt} is null)`,
);

/** What a run has under way that trains, whichever iteration began it. */
export const listRunningGroups = (deps: Pick<Deps, 'db'>) => async ({ runId }: { runId: string }): Promise<string[]> => {
  const rows = await deps.db.select({ id: groups.id }).from(groups).where(and(eq(groups.runId, runId), eq(groups.kind, 'train'), mayRun));
  return rows.map(({ id }) => id);
};
