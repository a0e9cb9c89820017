/**
 * Returns the number of groups that may start (invariant 10). It counts trials: a trial that still runs after its group was taken keeps
 * its slot, and a trial that came to nothing frees it. No more start than the run will train on.
 */
export function startableGroups(input: {
  /** The trials that run or may still be trained on. */
  live: number;
  runningGroups: number;
  /** The trials that a group ends with, and those of a batch. */
  groupTrials: number;
  batchTrials: number;
  /** The steps that are left, including this one. */
  stepsLeft: number;
  maxStaleness: number;
  maxConcurrent: number | null;
  /** The trials that a group starts with, those that run or are to start, and the most that may. */
  startedTrials: number;
  runningTrials: number;
  maxConcurrentTrials: number | null;
}): number {
  const {
    live,
    runningGroups,
    groupTrials,
    batchTrials,
    stepsLeft,
    maxStaleness,
    maxConcurrent,
    startedTrials,
    runningTrials,
    maxConcurrentTrials,
  } = input;
  const allowed = Math.min(maxStaleness + 1, stepsLeft) * batchTrials - live;
  const slots = Math.ceil(((maxConcurrentTrials ?? Infinity) - runningTrials) / startedTrials);
  return Math.max(0, Math.min((maxConcurrent ?? Infinity) - runningGroups, slots, Math.floor(allowed / groupTrials)));
}
