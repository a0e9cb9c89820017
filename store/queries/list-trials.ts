import { and, asc, eq, ne, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { trials, type Outcome } from '../schema.ts';
import type { TrialRow } from './transaction.ts';

export type TrialFilter = { runId?: string; groupId?: string; outcome?: Outcome; status?: 'created' | 'completed' };
/** A page of trials. `after` is the id of the last trial of the page before. */
export type TrialPage = { after?: string; limit: number };

/**
 * Returns trials that are not deleted, the oldest first.
 * @throws TrialgateError `bad_input` when there is no trial `after`
 */
export async function listTrials(db: Database, filter: TrialFilter, { after, limit }: TrialPage): Promise<TrialRow[]> {
  const { runId, groupId, outcome, status } = filter;
  if (after !== undefined && (await db.$count(trials, eq(trials.id, after))) === 0)
    throw new TrialgateError('bad_input', `cursor: there is no trial ${after}`);
  const wanted = and(
    ne(trials.status, 'deleted'),
    runId === undefined ? undefined : eq(trials.runId, runId),
    groupId === undefined ? undefined : eq(trials.groupId, groupId),
    outcome === undefined ? undefined : eq(trials.outcome, outcome),
    status === undefined ? undefined : eq(trials.status, status),
    // PostgreSQL compares the times, because JavaScript's dates are not as exact.
    after === undefined
      ? undefined
      : sql`(${trials.createdAt}, ${trials.id}) > (select seen.created_at, seen.id from trials seen where seen.id = ${after})`,
  );
  return db.select().from(trials).where(wanted).orderBy(asc(trials.createdAt), asc(trials.id)).limit(limit);
}
