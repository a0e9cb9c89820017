import { and, eq } from 'drizzle-orm';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { attempts, trials, type Outcome } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import type { GroupPlan } from '../rollout/group-plan.ts';
import { readRun } from '../run/read-run.ts';
import { attemptSettings } from '../trial/open-trial.ts';

export type OpenedExternalTrial = { finished: Outcome } | { finished: null; attempt: number };

/**
 * Opens a trial that a program outside will claim. An attempt that is open stays: the program goes on with it when the group's workflow
 * was lost and began again.
 */
export const openExternalTrial =
  (deps: Pick<Deps, 'db'>) =>
  async (input: { trialId: string; trialIndex: number; group: GroupPlan }): Promise<OpenedExternalTrial> => {
    const { trialId, trialIndex, group } = input;
    const [row] = await deps.db
      .select({ outcome: trials.outcome, attempt: trials.attempt, endedAt: attempts.endedAt })
      .from(trials)
      .leftJoin(attempts, and(eq(attempts.trialId, trials.id), eq(attempts.attempt, trials.attempt)))
      .where(eq(trials.id, trialId));
    if (row?.outcome) return { finished: row.outcome };
    if (row && row.endedAt === null) return { finished: null, attempt: row.attempt };
    const attempt = (row?.attempt ?? 0) + 1;
    const config = await readRun(deps.db, group.runId);
    await openAttempt(deps.db, { trialId, attempt, ...attemptSettings(config, group, trialIndex) });
    return { finished: null, attempt };
  };
