import { ApplicationFailure } from '@temporalio/common';
import { inArray } from 'drizzle-orm';
import { groups } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import type { GroupPlan } from '../rollout/group-plan.ts';
import { commonReason, readGroupTrials } from '../rollout/group-trials.ts';

export type EvaluatedGroup = Pick<GroupPlan, 'id' | 'size'>;

/**
 * Refuses an evaluation when most of its trials ended as `infra_error`, because it says nothing about its version. Those trials run again
 * with their groups. A verifier that gives no reward is no reason, because it would give none the next time either.
 */
export const checkEvaluation =
  (deps: Pick<Deps, 'db'>) =>
  async (input: { groups: EvaluatedGroup[] }): Promise<void> => {
    const all = await readGroupTrials(
      deps.db,
      inArray(
        groups.id,
        input.groups.map(({ id }) => id),
      ),
    );
    const planned = input.groups.reduce((sum, { size }) => sum + size, 0);
    const failed = all.filter(({ outcome }) => outcome === 'infra_error');
    // A trial that no host opened has no row.
    const bad = failed.length + planned - all.length;
    if (bad * 2 <= planned) return;
    const why = failed.length > 0 ? commonReason(failed) : 'no host opened a sandbox for them';
    throw ApplicationFailure.create({
      type: 'most_trials_failed',
      message: `${bad} of the evaluation's ${planned} trials failed: ${why}`,
      nonRetryable: true,
    });
  };
