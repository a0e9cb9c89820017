export const FIRST_POLL_MS = 10_000;
const [POLL_MS, LONGEST_MS] = [60_000, 900_000];

/** The result of a poll of the pool: no replica to repair, a replica that has its version again, or a repair that no replica confirmed. */
export type PollResult = 'nothing' | 'repaired' | 'failed';

/** Returns the milliseconds before the next poll. A failed repair loads all the weights for nothing, so the interval grows until a replica confirms one. */
export function poolPollInterval(pause: number, result: PollResult): number {
  if (result === 'repaired') return POLL_MS;
  return Math.max(pause, Math.min(2 * pause, result === 'failed' ? LONGEST_MS : POLL_MS));
}
