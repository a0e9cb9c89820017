import { blocked, cancelled, failed, finished, reset, terminated } from './ends.ts';
import { carriedOver, closedDuringPoll, engineWaits, late, operated, quorum, retried, reportedStragglers } from './groups.ts';
import { changedLast, evaluated, rescored, waited } from './on-demand.ts';
import type { Scenario } from '../stage.ts';

/** Each scenario is recorded into the file of its name. */
export const scenarios: Record<string, Scenario> = {
  finished, failed, cancelled, blocked, reset, terminated, 'carried-over': carriedOver, quorum, late, retried, operated, evaluated, rescored,
  'reported-stragglers': reportedStragglers, 'changed-last': changedLast, waited,
  'closed-during-poll': closedDuringPoll,
  'engine-waits': engineWaits,
};
