import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Returns the value of `probe` as soon as it is neither undefined, null nor false.
 * @throws Error with the source of the probe when the time is over
 */
export async function until<T>(probe: () => Promise<T> | T, withinMs = 120_000): Promise<NonNullable<T>> {
  for (const end = performance.now() + withinMs; ; await sleep(20)) {
    const value = await probe();
    if (value) return value;
    if (performance.now() > end)
      throw new Error(`the condition did not hold within ${withinMs} ms: ${probe.toString()}`);
  }
}
