import { condition, isCancellation } from '@temporalio/workflow';
import type { ExternalGroupState } from '../activities/external/follow-external-group.ts';
import type { OpenedExternalTrial } from '../activities/external/open-external-group.ts';
import type { GroupPlan } from '../activities/rollout/group-plan.ts';
import type { Outcome } from '../store/tables/trials.ts';
import { external, store } from './activities.ts';
import { cancelled, seal, unopenedOf, type TrialRun } from './run-trial.ts';

/** A group that a program outside runs. */
export type ExternalGroup = {
  opened: Promise<OpenedExternalTrial[]>;
  /** The group as the store last showed it. */
  state: ExternalGroupState;
};

/** Opens the group's trials, then keeps `state` up to date until its scope is cancelled. One activity follows all trials, so that waiting uses few of the worker's slots. */
export function openExternal(plan: GroupPlan): ExternalGroup {
  const opened = store.openExternalGroup(plan);
  const group: ExternalGroup = { opened, state: { isClaimed: false, outcomes: [] } };
  const follow = async () => {
    await opened;
    for (;;) group.state = await external.followExternalGroup({ groupId: plan.id, seen: group.state });
  };
  // The trials report a failure to open, and an end of the group cancels this.
  void follow().catch(() => {});
  return group;
}

/**
 * Runs one trial of a program outside: wait for the claim of its group → wait for its reward. Its time begins with the claim. The program's
 * report ends the trial in the store, and this workflow ends it when its time is over.
 */
export async function runExternalTrial(trial: TrialRun, group: ExternalGroup): Promise<Outcome> {
  const { trialId, trialIndex, limits } = trial;
  const ended = (): Outcome | null => group.state.outcomes[trialIndex] ?? null;
  try {
    return await trial.scope.run(async () => {
      const opened = (await group.opened)[trialIndex];
      if (!opened || opened.finished) return opened?.finished ?? 'cancelled';
      trial.state = 'waiting';
      await condition(() => group.state.isClaimed || ended() !== null);
      trial.state = 'agent';
      trial.deadline = Math.max(trial.deadline ?? 0, Date.now() + limits.trialSeconds * 1000 + trial.more);
      for (let until = trial.deadline; ended() === null && Date.now() < until; until = trial.deadline)
        await condition(() => ended() !== null || trial.deadline !== until, until - Date.now());
      const { attempt } = opened;
      return ended() ?? (await seal({ trialId, attempt }, withoutReward('within the trial’s time')));
    });
  } catch (error) {
    if (!isCancellation(error)) throw error;
    if (trial.cut !== 'deadline') return seal({ trialId, unopened: unopenedOf(trial) }, cancelled(trial));
    return seal({ trialId }, group.state.isClaimed ? withoutReward('before its group was cut') : UNCLAIMED);
  }
}

/** The program lost this trial. Its other trials go on, and the trial is not trained on. */
const withoutReward = (when: string) => ({
  outcome: 'cancelled' as const,
  reason: `the program reported no reward ${when}`,
  final: true,
});

/** No program works on the run, so its person must know. */
const UNCLAIMED = {
  outcome: 'verifier_error' as const,
  reason: 'no program claimed its group in time: is your program running?',
};
