import { and, desc, eq, isNull, sql } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { groups, runs, trials } from '../../store/schema.ts';

export type Progress = { status: string; reason: string | null; title: string; trials: string };

/** Reads a run's progress from the store, which answers even while workflows are being restarted. */
export async function readProgress(db: Database, runId: string): Promise<Progress | null> {
  const [run] = await db.select({ status: runs.status, reason: runs.reason }).from(runs).where(eq(runs.id, runId));
  if (!run) return null;
  const [newest] = await db
    .select()
    .from(groups)
    .where(eq(groups.runId, runId))
    .orderBy(desc(groups.openedAt))
    .limit(1);
  if (!newest) return { ...run, title: 'preparing', trials: '' };
  const sameTake =
    newest.iteration === null
      ? and(isNull(groups.iteration), eq(groups.policyVersion, newest.policyVersion))
      : and(eq(groups.iteration, newest.iteration), eq(groups.take, newest.take ?? 1));
  const outcome = sql<string>`coalesce(${trials.outcome}, 'running')`;
  const counts = await db
    .select({ outcome, count: sql<number>`count(*)::int` })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(and(eq(groups.runId, runId), sameTake))
    .groupBy(outcome)
    .orderBy(outcome);
  const title =
    newest.iteration === null
      ? `evaluating policy ${newest.policyVersion}`
      : `iteration ${newest.iteration}${newest.take === 1 ? '' : `, take ${newest.take}`}`;
  return { ...run, title, trials: counts.map((row) => `${row.count} ${row.outcome}`).join(', ') };
}
