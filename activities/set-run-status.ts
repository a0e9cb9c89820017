import { eq } from 'drizzle-orm';
import { sealLeftTrials } from '../store/queries/seal-left-trials.ts';
import { runs, type RunStatus } from '../store/schema.ts';
import type { Deps } from './deps.ts';

/** Where the run stands, for everyone who asks the store. `reason` is a sentence for a person. */
export const setRunStatus = (deps: Pick<Deps, 'db'>) => async (input: { runId: string; status: RunStatus; reason?: string }): Promise<void> => {
  const ended = input.status === 'running' || input.status === 'blocked' ? null : new Date();
  await deps.db.update(runs).set({ status: input.status, reason: input.reason ?? null, endedAt: ended }).where(eq(runs.id, input.runId));
  // A failed or cancelled one may be resumed, and tries them again. What is sealed from now on knows that the run is over.
  if (input.status === 'completed') await sealLeftTrials(deps.db, input.runId);
};
