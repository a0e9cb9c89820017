import { and, getTableColumns, ne, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { trials } from '../schema.ts';
import type { Trial } from './transaction.ts';

/** `seconds`: since the current attempt was opened. */
export type TrialNow = Trial & { seconds: number };

const now = { ...getTableColumns(trials), seconds: sql<number>`extract(epoch from now() - ${trials.attemptOpenedAt})`.mapWith(Number) };
const prepare = (db: Database) =>
  db.select(now).from(trials).where(and(sql`${trials.id} = any(${sql.placeholder('ids')}::text[])`, ne(trials.status, 'deleted'))).prepare('find_trials');
const prepared = new WeakMap<Database, ReturnType<typeof prepare>>();

/** Those of these trials that exist and are not deleted. Each call of a model asks for its trial. */
export async function findTrials(db: Database, ids: readonly string[]): Promise<TrialNow[]> {
  const query = prepared.get(db) ?? prepare(db);
  prepared.set(db, query);
  return query.execute({ ids });
}

export async function findTrial(db: Database, id: string): Promise<TrialNow | undefined> {
  const [trial] = await findTrials(db, [id]);
  return trial;
}
