/**
 * Returns the milliseconds between a run's last poll of its groups and the next one: a second for the first 64 polls, which are all that a
 * small iteration has, then longer and longer, up to about two minutes. A poll adds 13 events to the run's history. So the two hours that
 * an iteration has by default stay under 10,000 events, also where 128 groups of 16 trials end trial by trial and each straggler's end is
 * reported.
 */
export function groupPollInterval(polls: number): number {
  return 1000 * 2 ** Math.min(7, Math.max(0, Math.floor(polls / 16) - 3));
}
