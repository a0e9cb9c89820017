import type { TimelineGroup, TimelineTrial } from '../../clients/typescript/client.ts';

/**
 * What a trial does. `waits`: no attempt of it is open; it waits for a slot, or to be tried again. `opens`: from the opening of an attempt to
 * the start of its agent. `open`: an attempt whose record does not say when its agent began, so it opens or its agent runs.
 */
export type LaneName = 'waits' | 'opens' | 'open' | 'agent' | 'verifies';
export type Lane = {
  name: LaneName;
  attempt: number;
  start: number;
  end: number;
  /** Seconds of it in which the agent waited for its engine. The record has their sum, and not when they were. */
  engineWait: number;
};

/** The end of what has no end yet, and whether trials may still go on. */
type Now = { until: number; isOver: boolean };

/** Returns the parts of a trial's time in their order, in seconds since the epoch. */
export function lanesOf(trial: TimelineTrial, group: TimelineGroup, { until, isOver }: Now): Lane[] {
  const lanes: Lane[] = [];
  let free = group.opened_at;
  const add = (name: LaneName, attempt: number, start: number, end: number, engineWait = 0): void => {
    if (end > start) lanes.push({ name, attempt, start, end, engineWait: Math.min(engineWait, end - start) });
  };
  const last = trial.attempts.at(-1);
  for (const each of trial.attempts) {
    const { attempt, seconds } = each;
    const end = Math.max(each.opened_at, each.ended_at ?? until);
    const isLast = each === last;
    // The attempts of an external group are open before a program claims it.
    const claimed = group.is_unclaimed ? end : (group.claimed_at ?? each.opened_at);
    const opened = isLast ? Math.min(end, Math.max(each.opened_at, claimed)) : each.opened_at;
    const verify = seconds['verify'] === undefined ? end : end - seconds['verify'];
    // The time of the record is exact. It is that of the last attempt only.
    const verifyStart = Math.min(end, Math.max(opened, (isLast ? trial.completed_at : null) ?? verify));
    const agent = seconds['agent'];
    const agentStart = agent === undefined ? opened : Math.max(opened, verifyStart - agent);
    add('waits', attempt, free, opened);
    add('opens', attempt, opened, agentStart);
    add(agent === undefined ? 'open' : 'agent', attempt, agentStart, verifyStart, seconds['engine_wait']);
    add('verifies', attempt, verifyStart, end);
    free = end;
  }
  if (last && !isOver && isBetweenAttempts(trial, group)) add('waits', last.attempt + 1, free, until);
  return lanes;
}

/** The end of a trial's last attempt; null while it is under way. */
export const endOf = (trial: TimelineTrial): number | null => trial.attempts.at(-1)?.ended_at ?? null;

/** True when a trial of a group that goes on has neither an outcome nor an open attempt. */
export const isBetweenAttempts = (trial: TimelineTrial, group: TimelineGroup): boolean =>
  !trial.has_outcome && group.ended_at === null && endOf(trial) !== null;

/** The clocks of two workers write the ends of a trial and of its group. */
const CLOCKS = 1;

/** True when a trial ran on after its group had its quorum or had reached its deadline. */
export function isStraggler(trial: TimelineTrial, group: TimelineGroup): boolean {
  if (group.ended_at === null || trial.attempts.length === 0) return false;
  const end = endOf(trial);
  return end === null ? trial.outcome === null : end > group.ended_at + CLOCKS;
}
