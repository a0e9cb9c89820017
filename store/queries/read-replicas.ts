import { getTableColumns, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { replicas } from '../schema.ts';

/** Which engines there are, whose they are, and whether they are in rotation. `now()`: a query with it is never answered from a cache of Hyperdrive. */
export async function readReplicas(db: Database): Promise<(typeof replicas.$inferSelect)[]> {
  return db.select({ ...getTableColumns(replicas), readAt: sql`now()` }).from(replicas);
}
