import {
  CancellationScope,
  condition,
  getExternalWorkflowHandle,
  isCancellation,
  setCurrentDetails,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type { GroupPlan } from '../activities/rollout/group-plan.ts';
import type { Outcome } from '../store/tables/trials.ts';
import { store } from './activities.ts';
import {
  cutSignal,
  extendSignal,
  groupEndedSignal,
  groupMovedSignal,
  groupStatusQuery,
  skipSignal,
  staleSignal,
  type TrialState,
} from './messages.ts';
import { EXTERNAL_AGENT } from '../core/run-config/rollouts.ts';
import { openExternal, runExternalTrial } from './run-external-trial.ts';
import { runTrial, type TrialRun } from './run-trial.ts';

/** The outcomes that count for a group's quorum. A trial that failed through no fault of its own is no reason to cut a running one. */
const COUNTED: Outcome[] = ['scored', 'truncated', 'timed_out', 'agent_error'];

/** The states in which a trial's time has not begun. */
const WAITS: TrialState[] = ['opening', 'waiting'];

/**
 * Runs the G trials of one task side by side until all have ended, or until its quorum or its deadline. The group may outlive the
 * iteration that started it, so its end is a row in the store and a signal to the run, and not only a result.
 */
export async function rolloutGroup(group: GroupPlan): Promise<Outcome[]> {
  const limits = await store.openGroup(group);
  const owner = workflowInfo().parent?.workflowId ?? group.runId;
  const trials: TrialRun[] = Array.from({ length: group.size }, (_, trialIndex) => ({
    trialId: `${group.trialPrefix}-${trialIndex}`,
    trialIndex,
    group,
    limits,
    owner,
    scope: new CancellationScope(),
    cut: null,
    outcome: null,
    deadline: null,
    more: 0,
    state: 'opening',
  }));
  let deadline = Date.now() + (limits.unclaimedSeconds ?? limits.groupSeconds) * 1000;
  const running = () => trials.filter(({ outcome }) => outcome === null);
  const cut = (which: TrialRun[], as: TrialRun['cut']) => {
    for (const trial of which) {
      trial.cut ??= as;
      trial.scope.cancel();
    }
  };
  let isOver = false;
  const finish = () => {
    isOver = true;
    deadline = Date.now();
  };
  setHandler(cutSignal, finish);
  setHandler(skipSignal, ({ trialIndex }) =>
    cut(
      running().filter((trial) => trial.trialIndex === trialIndex),
      'skipped',
    ),
  );
  setHandler(staleSignal, ({ trialIndexes }) =>
    cut(
      running().filter(({ trialIndex }) => trialIndexes.includes(trialIndex)),
      'stale',
    ),
  );
  setHandler(extendSignal, ({ trialIndex, seconds }) => {
    const trial = running().find((each) => each.trialIndex === trialIndex);
    // A cut trial is only verified and needs no more time.
    if (!trial || trial.cut !== null || isOver) return;
    if (WAITS.includes(trial.state)) {
      trial.more += seconds * 1000;
      deadline += seconds * 1000;
    } else {
      trial.deadline = Math.max(trial.deadline ?? 0, Date.now()) + seconds * 1000;
      if (trial.deadline <= deadline) return;
      deadline = trial.deadline;
    }
    // The run's status shows the new deadline at once.
    void reportDeadline(group, owner, new Date(deadline).toISOString());
  });
  setHandler(groupStatusQuery, () => ({
    id: group.id,
    task: group.task,
    until: new Date(deadline).toISOString(),
    trials: trials.map(({ trialId: id, outcome, state, deadline: until }) => ({
      id,
      state: outcome ?? state,
      until: outcome !== null || until === null ? null : new Date(until).toISOString(),
    })),
  }));

  const following = new CancellationScope();
  const external = group.agent === EXTERNAL_AGENT ? await following.run(async () => openExternal(group)) : null;
  const ends = trials.map(async (trial) => {
    trial.outcome = await (external ? runExternalTrial(trial, external) : runTrial(trial));
    return trial.outcome;
  });
  const all = Promise.all(ends);
  // A trial whose workflow code fails ends the group. `await all` throws its error.
  all.catch(finish);
  const hasEnded = () => running().length === 0;
  const isAt = (count: number) =>
    trials.filter(({ outcome }) => outcome !== null && COUNTED.includes(outcome)).length >= count;
  try {
    let isReported = false;
    let left = 1;
    let isClaimed = false;
    const isNewlyClaimed = () => !isClaimed && external?.state.isClaimed === true;
    const isDue = () =>
      isReported ? running().length < left : isAt(limits.stragglers === 'wait' ? trials.length : limits.quorum);
    for (let until = deadline; !hasEnded() && Date.now() < until; until = deadline) {
      setCurrentDetails(
        `${trials.length - running().length} of ${trials.length} trials ended; deadline ${new Date(until).toISOString()}`,
      );
      await condition(() => hasEnded() || isDue() || isNewlyClaimed() || deadline !== until, until - Date.now());
      if (isNewlyClaimed()) {
        isClaimed = true;
        deadline = Math.max(Date.now() + limits.groupSeconds * 1000, ...trials.map((trial) => trial.deadline ?? 0));
      }
      if (hasEnded() || limits.stragglers === 'wait' || !isDue()) continue;
      isReported = true;
      if (limits.stragglers === 'cancel') cut(running(), 'dropped');
      else {
        // A step or a slot may wait for any of the trials that are left. A group that no batch can use yet may wait for a trial that makes it usable.
        left = running().length;
        const waits = await reportEnd(left > 0);
        if (!waits && !limits.reportsStragglers) left = 0;
      }
    }
    cut(running(), 'deadline');
    await all;
  } catch (error) {
    cut(running(), 'run');
    if (!isCancellation(error)) {
      // A failure in one trial's workflow code ends the other trials too.
      await CancellationScope.nonCancellable(() => Promise.allSettled(ends));
      throw error;
    }
  }
  return CancellationScope.nonCancellable(async () => {
    const outcomes = await all;
    following.cancel();
    await reportEnd(false, outcomes);
    return outcomes;
  });

  /** Reports the group's end. Returns true when the group has not ended but waits for its running trials. */
  async function reportEnd(
    runsOn: boolean,
    outcomes = trials.flatMap(({ outcome }) => outcome ?? []),
  ): Promise<boolean> {
    if (await store.endGroup({ id: group.id, isCut: trials.some(({ cut: why }) => why === 'run'), runsOn }))
      return true;
    // The run may have ended since; the row in the store remains.
    await getExternalWorkflowHandle(group.runId)
      .signal(groupEndedSignal, { id: group.id, outcomes })
      .catch(() => {});
    return false;
  }
}

async function reportDeadline({ id, runId, kind }: GroupPlan, owner: string, until: string): Promise<void> {
  await store.extendGroup({ id, until }).catch(() => {});
  const owners = owner === runId ? [runId] : [runId, owner];
  await Promise.all(
    owners.map((each) =>
      getExternalWorkflowHandle(each)
        .signal(groupMovedSignal, { id, until, kind })
        .catch(() => {}),
    ),
  );
}
