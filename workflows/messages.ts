import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import type { Outcome } from '../store/tables/trials.ts';

export type GroupEnd = { id: string; outcomes: Outcome[] };

export type RunStatusReport = {
  run: string;
  /** `preparing`, `waiting for engines`, `evaluation`, `rollout`, `train`, `publish`, `blocked`, `completed`. */
  phase: string;
  iteration: number;
  iterations: number;
  take: number;
  policy_version: number;
  groups_ended: number;
  groups: number;
  trials: Partial<Record<Outcome, number>>;
  /** Why it is blocked, and what it waits for. */
  reason: string | null;
};

/** `temporal workflow query --type status`. */
export const statusQuery = defineQuery<RunStatusReport>('status');
/** Goes on after a person mended what blocked the run. */
export const resumeUpdate = defineUpdate<string>('resume');
/** Ends the run after the iteration that is under way. */
export const stopUpdate = defineUpdate<string>('stop');

/** A group tells its run that it ended; its row in the store says so too. */
export const groupEndedSignal = defineSignal<[GroupEnd]>('groupEnded');
/** A phase of a child, for the run's `status`. */
export const phaseSignal = defineSignal<[{ phase: string; groups?: number }]>('phase');
/** A trial lost its engine: whoever owns the pool looks after it. */
export const engineTroubleSignal = defineSignal('engineTrouble');
