import { eq } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';

/** Marks the run as running before its workflow does, so that a watcher does not see the run's earlier end. */
export async function markRunning(db: Database, runId: string): Promise<void> {
  await db.update(runs).set({ status: 'running', reason: null, endedAt: null }).where(eq(runs.id, runId));
}
