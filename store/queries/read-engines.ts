import { asc, eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { replicas } from '../schema.ts';

/** Returns all replicas as they are stored, for people. */
export const readEngines = (db: Database): Promise<(typeof replicas.$inferSelect)[]> =>
  db.select().from(replicas).orderBy(asc(replicas.url));

export async function readEngine(db: Database, url: string): Promise<typeof replicas.$inferSelect | null> {
  const [row] = await db.select().from(replicas).where(eq(replicas.url, url));
  return row ?? null;
}
