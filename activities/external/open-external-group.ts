import { asc, eq } from 'drizzle-orm';
import { isCurrentAttempt } from '../../store/queries/current-attempt.ts';
import { UNCLAIMED_TASK } from '../../core/run-config/rollouts.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { attempts, groups, trials, type Outcome } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import type { GroupPlan } from '../rollout/group-plan.ts';
import { readRun } from '../run/read-run.ts';
import { attemptSettings } from '../trial/open-trial.ts';

/** A trial that a program may claim, with its open attempt, or a trial that has ended, with its outcome. */
export type OpenedExternalTrial = { finished: Outcome } | { finished: null; attempt: number };

/**
 * Opens the trials of a group that a program outside will claim.
 *
 * - Attempts that are open stay: a program goes on with them when the group's workflow was lost and began again.
 * - After a block or a cancellation, a group without a reward can be claimed again, for any task. The trials that a group with rewards
 *   lacks have no next attempt, because the program need not ask for its task again.
 */
export const openExternalGroup =
  (deps: Pick<Deps, 'db'>) =>
  async (group: GroupPlan): Promise<OpenedExternalTrial[]> => {
    const { db } = deps;
    const rows = await db
      .select({ trial: trials, endedAt: attempts.endedAt })
      .from(trials)
      .leftJoin(attempts, isCurrentAttempt)
      .where(eq(trials.groupId, group.id))
      .orderBy(asc(trials.trialIndex));
    const isOpen = ({ trial, endedAt }: (typeof rows)[number]) => trial.outcome === null && endedAt === null;
    const hasRewards = rows.some(({ trial }) => trial.rewards !== null);
    const [known] = await db.select({ claim: groups.claim }).from(groups).where(eq(groups.id, group.id));
    if (known?.claim !== null && !hasRewards && !rows.some(isOpen))
      await db
        .update(groups)
        .set({ claim: null, claimedAt: null, task: UNCLAIMED_TASK })
        .where(eq(groups.id, group.id));
    const config = await readRun(db, group.runId);
    const open = async (trialIndex: number): Promise<OpenedExternalTrial> => {
      const trialId = `${group.trialPrefix}-${trialIndex}`;
      const row = rows.find(({ trial }) => trial.trialIndex === trialIndex);
      if (row?.trial.outcome) return { finished: row.trial.outcome };
      if (row && isOpen(row)) return { finished: null, attempt: row.trial.attempt };
      if (row && hasRewards) {
        const reason = 'the run was blocked or ended before the program gave it a reward';
        await sealAttempt(db, { trialId, outcome: 'cancelled', reason, final: true });
        return { finished: 'cancelled' };
      }
      const attempt = (row?.trial.attempt ?? 0) + 1;
      // The claim names the task.
      await openAttempt(db, { trialId, attempt, ...attemptSettings(config, group, trialIndex), task: UNCLAIMED_TASK });
      return { finished: null, attempt };
    };
    const opened: OpenedExternalTrial[] = [];
    for (let index = 0; index < group.size; index++) opened.push(await open(index));
    return opened;
  };
