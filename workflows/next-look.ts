export const FIRST_LOOK_MS = 10_000;
const [LOOK_MS, LONGEST_MS] = [60_000, 900_000];

/** What a look at the pool came to: no replica to mend, one that has its version again, or a mend that nothing confirmed. */
export type Look = 'nothing' | 'mended' | 'in vain';

/** The pause before the next look, in milliseconds. A mend in vain loads all the weights: it comes less and less often, until one is confirmed. */
export function nextLook(pause: number, look: Look): number {
  if (look === 'mended') return LOOK_MS;
  return Math.max(pause, Math.min(2 * pause, look === 'in vain' ? LONGEST_MS : LOOK_MS));
}
