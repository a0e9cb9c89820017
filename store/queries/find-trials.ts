import { and, eq, ne } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { trials } from '../schema.ts';
import type { TrialRow } from './transaction.ts';

/** A trial as the gateway sees it. `seconds` counts from the opening of the current attempt. */
export type TrialNow = Pick<
  TrialRow,
  | 'id'
  | 'runId'
  | 'attempt'
  | 'status'
  | 'outcome'
  | 'sampling'
  | 'budgets'
  | 'recorded'
  | 'usedCalls'
  | 'usedTokens'
  | 'usedBytes'
  | 'reserved'
  | 'exhausted'
  | 'attemptOpenedAt'
> & { seconds: number };

/**
 * It is prepared and written by hand, because each call asks for its trial. A query builder would take most of its time in this process.
 * A row is one JSON value, because the client takes longer to read and describe so many columns than to parse it.
 */
const statement = {
  name: 'find_trials',
  text: `
select json_build_object('id', id, 'runId', run_id, 'attempt', attempt, 'status', status, 'outcome', outcome, 'sampling', sampling,
  'budgets', budgets, 'recorded', recorded, 'usedCalls', used_calls, 'usedTokens', used_tokens, 'usedBytes', used_bytes,
  'reserved', reserved, 'exhausted', exhausted, 'attemptOpenedAt', attempt_opened_at,
  'seconds', extract(epoch from now() - attempt_opened_at)) as trial
from trials where id = any($1::text[]) and status <> 'deleted'`,
};

type Row = { trial: Omit<TrialNow, 'attemptOpenedAt'> & { attemptOpenedAt: string } };

/** Returns the given trials that exist and are not deleted. */
export async function findTrials(db: Database, ids: readonly string[]): Promise<TrialNow[]> {
  const { rows } = await db.$client.query<Row>({ ...statement, values: [ids] });
  return rows.map(({ trial }) => ({ ...trial, attemptOpenedAt: new Date(trial.attemptOpenedAt) }));
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
