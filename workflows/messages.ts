import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import type { GroupPlan } from '../activities/rollout/group-plan.ts';
import type { Outcome } from '../store/tables/trials.ts';

export type GroupEnd = { id: string; outcomes: Outcome[] };

/** Times are ISO 8601. */
export type GroupStatus = {
  id: string;
  task: string;
  state: 'running' | 'ended';
  since: string;
  /**
   * While the group runs: how many of its trials are `waiting` for a sandbox, `running` and `ended`, as of the run's last poll. After its
   * end: the number of trials by outcome.
   */
  trials: Record<string, number>;
  /** The time at which it is cut at the latest. */
  until: string | null;
};
/** The state of a trial: `opening` (it waits for a sandbox), `agent`, `verifying`, `waiting` (for its next attempt, or for a program to claim it), or its outcome. */
export type TrialState = 'opening' | 'agent' | 'verifying' | 'waiting' | Outcome;
/** The group's answer to the query `status`. A trial's `until` is the time at which its agent is ended at the latest. */
export type GroupReport = {
  id: string;
  task: string;
  until: string;
  trials: { id: string; state: TrialState; until: string | null }[];
};

export type RunStatusReport = {
  run: string;
  /** `preparing`, `waiting for engines`, `evaluation`, `rollout`, `batch`, `train`, `publish`, `paused`, `blocked`, `completed`. */
  phase: string;
  iteration: number;
  iterations: number;
  take: number;
  policy_version: number;
  groups_ended: number;
  groups_total: number;
  trials: Partial<Record<Outcome, number>>;
  /** The cause of the run's wait, and its latest end. */
  waits_for: string | null;
  until: string | null;
  /** The groups that this iteration or its evaluation began, and those that still run from earlier ones. */
  groups: GroupStatus[];
  /** The reason why the run is blocked. */
  reason: string | null;
  /** The type of the failure that blocked the run. Absent from workers of earlier releases. */
  reason_type?: string | null;
};

/** `temporal workflow query --type status`. */
export const statusQuery = defineQuery<RunStatusReport>('status');
export const groupStatusQuery = defineQuery<GroupReport>('status');
/** Resumes a blocked or paused run. */
export const resumeUpdate = defineUpdate<string>('resume');
/** The type of the failure with which a run that is ending refuses a resume. */
export const RUN_ENDING = 'run_ending';
/** Ends the run after the current iteration. */
export const stopUpdate = defineUpdate<string>('stop');
/** The length of a pause without a time of its own: a day. */
export const PAUSE_SECONDS = 86_400;
/** Starts no more groups and no train step for so many seconds, `PAUSE_SECONDS` when none are given. Work under way goes on. */
export const pauseUpdate = defineUpdate<string, [{ seconds?: number }]>('pause');
/** Changes settings of the run file from their next use on. An invalid value is refused. */
export const configureUpdate = defineUpdate<string, [Record<string, unknown>]>('configure');
/** Ends a trial now; nothing trains on it. */
export const skipUpdate = defineUpdate<string, [{ trial: string }]>('skip');
/** Gives a trial more time, and with it its group and the iteration or evaluation that waits for the group. */
export const extendUpdate = defineUpdate<string, [{ trial: string; seconds: number }]>('extend');

/** Reports a group's end to its run. The group's row in the store has it too. */
export const groupEndedSignal = defineSignal<[GroupEnd]>('groupEnded');
/** Reports a group's later deadline to its run and to its evaluation. */
export const groupMovedSignal = defineSignal<[{ id: string; until: string; kind?: GroupPlan['kind'] }]>('groupMoved');
/** Reports a child's phase for the run's `status`: what it waits for or which groups it has under way, and for how long at most. */
export const phaseSignal =
  defineSignal<
    [{ phase: string; waitsFor?: string; begun?: { id: string; task: string; size: number }[]; seconds?: number }]
  >('phase');
/** Reports that a trial lost its engine, so that the owner of the pool repairs it. */
export const engineTroubleSignal = defineSignal('engineTrouble');
/** Sent to a run just before it is cancelled: the words that say who cancels it, or why, such as `cancelled by a person`. */
export const endingSignal = defineSignal<[{ reason: string }]>('ending');
/** Sent to a group: its deadline is now. */
export const cutSignal = defineSignal('cut');
/** Sent to a group: ends one of its trials. */
export const skipSignal = defineSignal<[{ trialIndex: number }]>('skip');
/** Sent to a group: ends trials that are older than the run allows. */
export const staleSignal = defineSignal<[{ trialIndexes: number[] }]>('stale');
export const extendSignal = defineSignal<[{ trialIndex: number; seconds: number }]>('extend');
