import { condition, isCancellation } from '@temporalio/workflow';
import type { ExternalTrialState } from '../activities/external/follow-external-group.ts';
import type { Outcome } from '../store/tables/trials.ts';
import { external, store } from './activities.ts';
import { cancelled, seal, unopenedOf, type TrialRun } from './run-trial.ts';

/** The trials of a group that a program outside runs, as the store last showed them. */
export type ExternalStates = { trials: ExternalTrialState[] };

/** Keeps `states` up to date until its scope is cancelled. One activity follows all trials of a group, so that waiting uses few of the worker's slots. */
export async function followGroup(groupId: string, states: ExternalStates): Promise<void> {
  for (;;) states.trials = await external.followExternalGroup({ groupId, seen: states.trials });
}

/**
 * Runs one trial of a program outside: open → wait for its claim → wait for its reward. Its time begins with the claim. The program's report
 * ends the trial in the store, and this workflow ends it when its time is over.
 */
export async function runExternalTrial(trial: TrialRun, states: ExternalStates): Promise<Outcome> {
  const { trialId, trialIndex, group, limits } = trial;
  let attempt: number | null = null;
  // The store may still show an attempt from before a resume.
  const state = () =>
    states.trials.find((each) => each[0] === trialIndex && each[1] === attempt)?.[2] ?? ('unclaimed' as const);
  try {
    return await trial.scope.run(async () => {
      const opened = await store.openExternalTrial({ trialId, trialIndex, group });
      if (opened.finished) return opened.finished;
      attempt = opened.attempt;
      trial.state = 'waiting';
      await condition(() => state() !== 'unclaimed');
      trial.state = 'agent';
      trial.deadline = Math.max(trial.deadline ?? 0, Date.now() + limits.trialSeconds * 1000 + trial.more);
      for (let until = trial.deadline; Date.now() < until; until = trial.deadline) {
        await condition(() => state() !== 'claimed' || trial.deadline !== until, until - Date.now());
        const now = state();
        if (now === 'ended') return 'cancelled';
        if (now !== 'claimed' && now !== 'unclaimed') return now;
      }
      return await seal({ trialId, attempt }, withoutReward(`the program reported no reward within the trial’s time`));
    });
  } catch (error) {
    if (!isCancellation(error)) throw error;
    if (trial.cut !== 'deadline') return seal({ trialId, unopened: unopenedOf(trial) }, cancelled(trial));
    const reason =
      state() === 'unclaimed'
        ? 'no program claimed it before the group’s deadline: is your program running?'
        : 'the program reported no reward before the group’s deadline';
    return seal({ trialId }, withoutReward(reason));
  }
}

/** A trial that nobody judged counts as one whose verifier failed. */
const withoutReward = (reason: string) => ({ outcome: 'verifier_error' as const, reason });
