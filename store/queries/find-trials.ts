import type { Database } from '../database.ts';
import { trials } from '../schema.ts';
import { and, getTableColumns, inArray, ne, sql } from 'drizzle-orm';
import type { Trial } from './transaction.ts';

/** `seconds`: since the current attempt was opened. */
export type TrialNow = Trial & { seconds: number };

const now = { ...getTableColumns(trials), seconds: sql<number>`extract(epoch from now() - ${trials.attemptOpenedAt})`.mapWith(Number) };

/** Those of these trials that exist and are not deleted. */
export async function findTrials(db: Database, ids: readonly string[]): Promise<TrialNow[]> {
  return db.select(now).from(trials).where(and(inArray(trials.id, [...ids]), ne(trials.status, 'deleted')));
}

export async function findTrial(db: Database, id: string): Promise<TrialNow | undefined> {
  const [trial] = await findTrials(db, [id]);
  return trial;
}
