export const FIRST_LOOK_MS = 10_000;
const [LOOK_MS, LONGEST_MS] = [60_000, 900_000];

/** The result of a poll of the pool: no replica to repair, a replica that has its version again, or a repair that no replica confirmed. */
export type Look = 'nothing' | 'mended' | 'in vain';

/** Returns the milliseconds before the next poll. A failed repair loads all the weights for nothing, so the interval grows until a replica confirms one. */
export function nextLook(pause: number, look: Look): number {
  if (look === 'mended') return LOOK_MS;
  return Math.max(pause, Math.min(2 * pause, look === 'in vain' ? LONGEST_MS : LOOK_MS));
}
