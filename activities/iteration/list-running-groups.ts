import { and, eq, isNull, or, sql } from 'drizzle-orm';
import { isOwnEvaluation } from '../../store/queries/own-evaluation.ts';
import { groups, trials } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import { isRunning } from '../temporal/is-running.ts';

const finished = sql`(select count(*) from ${trials} as trial where trial.group_id = ${groups.id} and trial.outcome is not null)`;

/**
 * Selects groups whose workflows may run: those that have not ended, and those with a straggler, which may be between two attempts or may
 * never have had one. A day after its deadline a group has no straggler.
 */
export const mayRun = or(
  isNull(groups.endedAt),
  sql`(${finished} < ${groups.size} and coalesce(${groups.deadlineAt}, ${groups.openedAt}) > now() - interval '1 day')`,
);

/**
 * Returns the run's training groups whose workflows run, whichever iteration began them and whether or not a batch may use them;
 * `withEvaluations` also those of the evaluations that its run file asks for.
 */
export const listRunningGroups =
  (deps: Pick<Deps, 'db' | 'temporal'>) =>
  async ({ runId, withEvaluations = false }: { runId: string; withEvaluations?: boolean }): Promise<string[]> => {
    const which = withEvaluations ? or(eq(groups.kind, 'train'), isOwnEvaluation) : eq(groups.kind, 'train');
    const rows = await deps.db
      .select({ id: groups.id })
      .from(groups)
      .where(and(eq(groups.runId, runId), which, mayRun));
    const running = await Promise.all(rows.map(async ({ id }) => ((await isRunning(deps, id)) ? [id] : [])));
    return running.flat();
  };
