import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import type { GroupPlan } from '../activities/group-plan.ts';
import type { Outcome } from '../store/tables/trials.ts';

export type GroupEnd = { id: string; outcomes: Outcome[] };

/** Times are ISO 8601. */
export type GroupStatus = {
  id: string;
  task: string;
  state: 'running' | 'ended';
  since: string;
  /** What it waits for: how many of its trials are `waiting` for a sandbox, `running`, `ended`, as the run last looked. Of a group that has ended: by outcome. */
  trials: Record<string, number>;
  /** When it is cut at the latest. */
  until: string | null;
};
/** What a trial does: `opening` (it waits for a sandbox), `agent`, `verifying`, `waiting` (for its next attempt), or its outcome. */
export type TrialState = 'opening' | 'agent' | 'verifying' | 'waiting' | Outcome;
/** A group's own answer to `status`. `until`: of a trial, when its agent is ended at the latest. */
export type GroupReport = { id: string; task: string; until: string; trials: { id: string; state: TrialState; until: string | null }[] };

export type RunStatusReport = {
  run: string;
  /** `preparing`, `waiting for engines`, `evaluation`, `rollout`, `batch`, `train`, `publish`, `paused`, `blocked`, `completed`. */
  phase: string;
  iteration: number;
  iterations: number;
  take: number;
  policy_version: number;
  groups_ended: number;
  groups: number;
  trials: Partial<Record<Outcome, number>>;
  /** What it waits for, and until when at most. */
  waits_for: string | null;
  until: string | null;
  /** Those that this iteration or its evaluation began, or that run on from earlier ones. */
  members: GroupStatus[];
  /** Why it is blocked. */
  reason: string | null;
};

/** `temporal workflow query --type status`. */
export const statusQuery = defineQuery<RunStatusReport>('status');
export const groupStatusQuery = defineQuery<GroupReport>('status');
/** Goes on after a person mended what blocked the run, or before a pause is over. */
export const resumeUpdate = defineUpdate<string>('resume');
/** The type of the failure with which an ending run refuses a resume. */
export const RUN_ENDING = 'run_ending';
/** Ends the run after the iteration that is under way. */
export const stopUpdate = defineUpdate<string>('stop');
/** Starts no more groups and no train step for so many seconds: a day, unless told. What runs goes on. */
export const pauseUpdate = defineUpdate<string, [{ seconds?: number }]>('pause');
/** Changes settings of the run file from the next use of each on. A bad value is refused. */
export const configureUpdate = defineUpdate<string, [Record<string, unknown>]>('configure');
/** Ends a trial now; nothing trains on it. */
export const skipUpdate = defineUpdate<string, [{ trial: string }]>('skip');
/** Gives a trial more time, and with it its group and what waits for that: the iteration, the evaluation. */
export const extendUpdate = defineUpdate<string, [{ trial: string; seconds: number }]>('extend');

/** A group tells its run that it ended; its row in the store says so too. */
export const groupEndedSignal = defineSignal<[GroupEnd]>('groupEnded');
/** A group tells its run, and the evaluation that it is of, that it was given more time. */
export const groupMovedSignal = defineSignal<[{ id: string; until: string; kind?: GroupPlan['kind'] }]>('groupMoved');
/** A phase of a child, for the run's `status`, what it waits for or the groups that it has under way, and for how long at most. */
export const phaseSignal = defineSignal<[{ phase: string; waitsFor?: string; begun?: { id: string; task: string; size: number }[]; seconds?: number }]>('phase');
/** A trial lost its engine: whoever owns the pool looks after it. */
export const engineTroubleSignal = defineSignal('engineTrouble');
/** To a group: its deadline is now. */
export const cutSignal = defineSignal('cut');
/** To a group, of one of its trials. */
export const skipSignal = defineSignal<[{ member: number }]>('skip');
/** To a group: these trials are older than the run allows. */
export const staleSignal = defineSignal<[{ members: number[] }]>('stale');
export const extendSignal = defineSignal<[{ member: number; seconds: number }]>('extend');
