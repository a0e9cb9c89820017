import { eq } from 'drizzle-orm';
import { runs, type RunStatus } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';

/** Writes the run's status. `reason` is a sentence for a person. */
export const setRunStatus =
  (deps: Deps) =>
  async (input: { runId: string; status: RunStatus; reason?: string }): Promise<void> => {
    const ended = input.status === 'running' || input.status === 'blocked' ? null : new Date();
    await deps.db
      .update(runs)
      .set({ status: input.status, reason: input.reason ?? null, endedAt: ended })
      .where(eq(runs.id, input.runId));
  };
