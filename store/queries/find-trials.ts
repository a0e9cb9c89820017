import { and, eq, ne, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { trials } from '../schema.ts';
import type { TrialRow } from './transaction.ts';

/** The columns that the gateway needs to answer a trial's calls. */
const needed = {
  id: trials.id,
  runId: trials.runId,
  attempt: trials.attempt,
  status: trials.status,
  outcome: trials.outcome,
  sampling: trials.sampling,
  budgets: trials.budgets,
  recorded: trials.recorded,
  usedCalls: trials.usedCalls,
  usedTokens: trials.usedTokens,
  usedBytes: trials.usedBytes,
  reserved: trials.reserved,
  exhausted: trials.exhausted,
  attemptOpenedAt: trials.attemptOpenedAt,
};
const now = { ...needed, seconds: sql<number>`extract(epoch from now() - ${trials.attemptOpenedAt})`.mapWith(Number) };

/** A trial as the gateway sees it. `seconds` counts from the opening of the current attempt. */
export type TrialNow = Pick<TrialRow, keyof typeof needed> & { seconds: number };

const prepare = (db: Database) =>
  db
    .select(now)
    .from(trials)
    .where(and(sql`${trials.id} = any(${sql.placeholder('ids')}::text[])`, ne(trials.status, 'deleted')))
    .prepare('find_trials');
const prepared = new WeakMap<Database, ReturnType<typeof prepare>>();

/** Returns the given trials that exist and are not deleted. The statement is prepared because each call asks for its trial. */
export async function findTrials(db: Database, ids: readonly string[]): Promise<TrialNow[]> {
  const query = prepared.get(db) ?? prepare(db);
  prepared.set(db, query);
  return query.execute({ ids });
}

export async function findTrial(db: Database, id: string): Promise<TrialNow | undefined> {
  const [trial] = await findTrials(db, [id]);
  return trial;
}

/** Returns all columns of a trial. */
export async function readTrial(db: Database, trialId: string): Promise<TrialRow | undefined> {
  const [trial] = await db
    .select()
    .from(trials)
    .where(and(eq(trials.id, trialId), ne(trials.status, 'deleted')));
  return trial;
}
