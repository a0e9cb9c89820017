import { setTimeout as sleep } from 'node:timers/promises';
import { currentTest } from './current-test.ts';

/** A probe may ask a server that is busy with what is awaited, so the longer it takes, the more seldom it is asked. */
const pauseAfter = (ms: number): number => Math.min(Math.max(20, ms / 10), 100);

/**
 * Returns the value of `probe` as soon as it is neither undefined, null nor false.
 * @throws Error with the source of the probe when the time is over, and the reason of the test's own signal when the test reached its limit
 */
export async function until<T>(probe: () => Promise<T> | T, withinMs = 120_000): Promise<NonNullable<T>> {
  const { signal } = currentTest;
  for (const start = performance.now(); ; await sleep(pauseAfter(performance.now() - start))) {
    signal?.throwIfAborted();
    const value = await probe();
    if (value) return value;
    if (performance.now() - start > withinMs)
      throw new Error(`the condition did not hold within ${withinMs} ms: ${probe.toString()}`);
  }
}
