import { eq, getTableColumns, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { trials } from '../schema.ts';
import { readUsage, type Usage } from './read-usage.ts';
import type { Trial } from './transaction.ts';

/** One trial's row; undefined when unknown or deleted. */
export async function findTrial(db: Database, trialId: string): Promise<Trial | undefined> {
  const [trial] = await db.select().from(trials).where(eq(trials.id, trialId));
  return trial?.status === 'deleted' ? undefined : trial;
}

/** `completed`: how many calls of the current attempt have. */
export type TrialForCall = Trial & { completed: number };

export async function findTrialForCall(db: Database, trialId: string): Promise<TrialForCall | undefined> {
  const completed = sql<number>`(select count(*)::int from calls where calls.trial_id = trials.id and calls.attempt = trials.attempt and calls.status = 'completed')`;
  const [trial] = await db.select({ ...getTableColumns(trials), completed }).from(trials).where(eq(trials.id, trialId));
  return trial?.status === 'deleted' ? undefined : trial;
}

/**
 * A trial with what its current attempt has used. `usage.exhausted` is not null when the agent was stopped by a budget or by
 * the model's context: what it left is then `truncated`, not an error of its own.
 */
export async function readTrial(db: Database, trialId: string): Promise<(Trial & { usage: Usage }) | undefined> {
  const trial = await findTrial(db, trialId);
  return trial && { ...trial, usage: await readUsage(db, { trialId, attempt: trial.attempt }) };
}
