import { getTableColumns, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { replicas } from '../schema.ts';

/** Returns all replicas. The query has `now()` because Hyperdrive never answers such a query from its cache. */
export async function readReplicas(db: Database): Promise<(typeof replicas.$inferSelect)[]> {
  return db.select({ ...getTableColumns(replicas), readAt: sql`now()` }).from(replicas);
}
