import { and, eq, isNotNull, isNull, notInArray } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { DEPLOYMENT_POOL, replicas } from '../schema.ts';

/**
 * Makes `urls` the deployment's pool. Replicas that are not in it any more leave the pool, even if a run owns them, because nothing may be
 * sent there. The engines that a run's own file names stay. New replicas join the run that owns the pool, out of rotation until it
 * publishes to them.
 */
export async function registerReplicas(db: Database, urls: readonly string[]): Promise<void> {
  await db.transaction(async (tx) => {
    const gone = eq(replicas.pool, DEPLOYMENT_POOL);
    await tx
      .delete(replicas)
      .where(urls.length > 0 ? and(gone, notInArray(replicas.url, [...urls])) : and(gone, isNull(replicas.runId)));
    if (urls.length === 0) return;
    const [owned] = await tx
      .select()
      .from(replicas)
      .where(and(gone, isNotNull(replicas.runId)))
      .limit(1);
    const joining = owned ? { runId: owned.runId, weightVersion: owned.weightVersion, inRotation: false } : {};
    await tx
      .insert(replicas)
      .values(urls.map((url) => ({ url, ...joining })))
      .onConflictDoNothing();
  });
}
