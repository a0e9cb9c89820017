import { getTableColumns, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { replicas } from '../schema.ts';
import { isDraining } from './is-draining.ts';

/**
 * Returns all replicas. One that drains is out of rotation here. The query has `now()` because Hyperdrive never answers such a query from
 * its cache.
 */
export async function readReplicas(db: Database): Promise<(typeof replicas.$inferSelect)[]> {
  const inRotation = sql<boolean>`${replicas.inRotation} and not ${isDraining}`;
  return db.select({ ...getTableColumns(replicas), inRotation, readAt: sql`now()` }).from(replicas);
}
