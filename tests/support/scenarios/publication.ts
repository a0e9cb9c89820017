import { eq } from 'drizzle-orm';
import type { Database } from '../../../store/database.ts';
import { publications, replicas } from '../../../store/schema.ts';

/** Gives an engine to a run: it confirmed version 11, and version 12 has been published to it for 40 s. Returns what undoes that. */
export async function recordPublication(db: Database, runId: string, engine: string): Promise<() => Promise<void>> {
  const isIt = eq(replicas.url, engine);
  const updatedAt = new Date(Date.now() - 40_000);
  await db
    .update(replicas)
    .set({ runId, weightVersion: `${runId}@12`, inRotation: false, updatedAt })
    .where(isIt);
  const version = { version: 11, weightVersion: `${runId}@11` };
  await db.insert(publications).values({ runId, ...version, replica: engine, checksum: 'c', canaryDifference: 0 });
  return async () => {
    await db.update(replicas).set({ runId: null, weightVersion: null, inRotation: true }).where(isIt);
    await db.delete(publications).where(eq(publications.replica, engine));
  };
}
