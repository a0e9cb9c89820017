import { eq } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';

/** Said before the workflow says it itself, so that who watches is not told of the run's old end. */
export async function markRunning(db: Database, runId: string): Promise<void> {
  await db.update(runs).set({ status: 'running', reason: null, endedAt: null }).where(eq(runs.id, runId));
}
