import { eq, sql } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';

/** Marks the run as paused for so many seconds; null: no more. What the run does does not depend on it. Returns false when it failed. */
export async function markPaused(db: Database, runId: string, seconds: number | null): Promise<boolean> {
  const pausedUntil = seconds === null ? null : sql`now() + make_interval(secs => ${seconds})`;
  return db
    .update(runs)
    .set({ pausedUntil })
    .where(eq(runs.id, runId))
    .then(
      () => true,
      () => false,
    );
}

/** Marks the run as running before its workflow does, so that a watcher does not see the run's earlier end. */
export async function markRunning(db: Database, runId: string): Promise<void> {
  await db
    .update(runs)
    .set({ status: 'running', reason: null, endedAt: null, pausedUntil: null })
    .where(eq(runs.id, runId));
}
