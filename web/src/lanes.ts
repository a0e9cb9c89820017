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

/** Returns the parts of a trial's time in their order, in seconds since the epoch. `until` is the end of what has no end yet. */
export function lanesOf(trial: TimelineTrial, group: TimelineGroup, until: number): Lane[] {
  const lanes: Lane[] = [];
  let free = group.opened_at;
  for (const { attempt, opened_at: opened, ended_at: ended, seconds } of trial.attempts) {
    const end = Math.max(opened, ended ?? until);
    const add = (name: LaneName, start: number, stop: number, engineWait = 0): void => {
      if (stop > start) lanes.push({ name, attempt, start, end: stop, engineWait: Math.min(engineWait, stop - start) });
    };
    const isLast = attempt === trial.attempts.at(-1)?.attempt;
    const completed = isLast ? trial.completed_at : null;
    const verify = seconds['verify'] === undefined ? (completed ?? end) : end - seconds['verify'];
    const verifyStart = Math.min(end, Math.max(opened, verify));
    const agent = seconds['agent'];
    const agentStart = agent === undefined ? opened : Math.max(opened, verifyStart - agent);
    add('waits', free, opened);
    add('opens', opened, agentStart);
    add(agent === undefined ? 'open' : 'agent', agentStart, verifyStart, seconds['engine_wait']);
    add('verifies', verifyStart, end);
    free = end;
  }
  return lanes;
}

/** The end of a trial's last attempt; null while it is under way. */
export const endOf = (trial: TimelineTrial): number | null => trial.attempts.at(-1)?.ended_at ?? null;

/** True when a trial ran on after its group had its quorum or had reached its deadline. */
export function isStraggler(trial: TimelineTrial, group: TimelineGroup): boolean {
  if (group.ended_at === null || trial.attempts.length === 0) return false;
  const end = endOf(trial);
  return end === null ? trial.outcome === null : end > group.ended_at;
}
