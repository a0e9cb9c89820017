import { groups, iterations } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import type { GroupPlan } from './group-plan.ts';
import { readRun } from '../run/read-run.ts';
import { requireOpenTake } from '../iteration/require-open-take.ts';
import { ofTake } from '../../store/queries/takes.ts';
import { EXTERNAL_AGENT } from '../../core/run-config/rollouts.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';

export type GroupLimits = {
  maxAttempts: number;
  trialSeconds: number;
  /** The most seconds of an agent, with its waits for the engine. */
  trialAtMostSeconds?: number;
  groupSeconds: number;
  /** A group that a program outside is to claim waits so long for the claim. Its other times begin with the claim. */
  unclaimedSeconds?: number;
  /** The number of trials that must have ended before the group counts as ended. */
  quorum: number;
  stragglers: RunConfig['stragglers'];
  /** True when the run may wait for any single straggler, so that the end of each is reported. */
  reportsStragglers: boolean;
};

/** Writes the group's row, unless its plan did, and returns its limits. A group of a superseded take is refused, because it has nothing left to do. */
export const openGroup =
  (deps: Deps) =>
  async (plan: GroupPlan): Promise<GroupLimits> => {
    const { id, runId, kind, iteration, take, ordinal, task, agent, size, policyVersion } = plan;
    if (iteration !== null && take !== null) {
      const [row] = await deps.db
        .select({ status: iterations.status })
        .from(iterations)
        .where(ofTake(iterations, { runId, iteration, take }));
      // A group that outlives its iteration goes on when that is done.
      if (row?.status !== 'done') requireOpenTake(row, id);
    }
    const config = await readRun(deps.db, runId);
    const unclaimedSeconds = agent === EXTERNAL_AGENT ? config.deadlines.iteration : undefined;
    const deadlineAt = new Date(Date.now() + (unclaimedSeconds ?? config.deadlines.group) * 1000);
    await deps.db
      .insert(groups)
      .values({ id, runId, kind, iteration, take, ordinal, task, agent, size, policyVersion, deadlineAt })
      .onConflictDoUpdate({ target: groups.id, set: { endedAt: null, deadlineAt } });
    const limits = {
      maxAttempts: config.max_attempts,
      trialSeconds: config.deadlines.trial,
      trialAtMostSeconds: Math.max(
        config.deadlines.trial,
        config.deadlines.trial_at_most ?? 2 * config.deadlines.trial,
      ),
      groupSeconds: config.deadlines.group,
      ...(unclaimedSeconds === undefined ? {} : { unclaimedSeconds }),
      reportsStragglers: config.max_stale_stragglers !== null || config.max_concurrent_trials !== null,
    };
    if (kind === 'eval') return { ...limits, quorum: size, stragglers: 'wait' };
    if (config.over_sampling > 0) return { ...limits, quorum: Math.min(size, config.group_size), stragglers: 'cancel' };
    return { ...limits, quorum: Math.min(size, config.group_quorum ?? size), stragglers: config.stragglers };
  };
