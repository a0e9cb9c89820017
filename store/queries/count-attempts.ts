import { and, eq, inArray, isNotNull, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { attempts, runs, trials } from '../schema.ts';

/** The ended attempts of a task under one policy version, and the number of them that ended with an infrastructure error. */
export type AttemptCount = {
  runId: string;
  task: string;
  policyVersion: number | null;
  ended: number;
  infraErrors: number;
};

/** Counts the attempts of one run, or of all active runs when no id is given. */
export async function countAttempts(db: Database, runId?: string): Promise<AttemptCount[]> {
  const underWay = db
    .select({ id: runs.id })
    .from(runs)
    .where(inArray(runs.status, ['running', 'blocked']));
  return db
    .select({
      runId: sql<string>`${trials.runId}`,
      task: sql<string>`coalesce(${trials.task}, '')`,
      policyVersion: trials.policyVersion,
      ended: sql<number>`count(*)::int`,
      infraErrors: sql<number>`count(*) filter (where ${attempts.outcome} = 'infra_error')::int`,
    })
    .from(trials)
    .innerJoin(attempts, eq(attempts.trialId, trials.id))
    .where(
      and(runId === undefined ? inArray(trials.runId, underWay) : eq(trials.runId, runId), isNotNull(attempts.outcome)),
    )
    .groupBy(trials.runId, trials.task, trials.policyVersion);
}
