import { eq } from 'drizzle-orm';
import { runs, type RunStatus } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import { pruneCheckpoints } from './prune-checkpoints.ts';

/**
 * Writes the run's status. `reason` is a sentence for a person. A completed run keeps only the checkpoints that its run file names; any other
 * run may be resumed and keeps all.
 */
export const setRunStatus =
  (deps: Deps) =>
  async (input: { runId: string; status: RunStatus; reason?: string }): Promise<void> => {
    const ended = input.status === 'running' || input.status === 'blocked' ? null : new Date();
    await deps.db
      .update(runs)
      .set({ status: input.status, reason: input.reason ?? null, endedAt: ended })
      .where(eq(runs.id, input.runId));
    if (input.status === 'completed') await pruneCheckpoints(deps.db, input.runId);
  };
