/**
 * How many more groups may start (invariant 10), counted in trials: one that runs on after its group was taken holds its place,
 * and one that came to nothing gives it back. Never more than the run will train on.
 */
export function room(input: {
  /** Trials that run, or may still be trained on. */
  live: number;
  runningGroups: number;
  /** Trials that a group ends with, and that a batch is made of. */
  groupTrials: number;
  batchTrials: number;
  /** Steps still to be made, this one included. */
  stepsLeft: number;
  maxStaleness: number;
  maxConcurrent: number | null;
  /** Trials that a group starts with; those that run or are to start, and how many may. */
  startedTrials: number;
  runningTrials: number;
  maxConcurrentTrials: number | null;
}): number {
  const { live, runningGroups, groupTrials, batchTrials, stepsLeft, maxStaleness, maxConcurrent, startedTrials, runningTrials, maxConcurrentTrials } = input;
  const allowed = Math.min(maxStaleness + 1, stepsLeft) * batchTrials - live;
  const places = Math.ceil(((maxConcurrentTrials ?? Infinity) - runningTrials) / startedTrials);
  return Math.max(0, Math.min((maxConcurrent ?? Infinity) - runningGroups, places, Math.floor(allowed / groupTrials)));
}
