import { setTimeout as sleep } from 'node:timers/promises';

/** What `probe` gives once that is neither undefined, null nor false. @throws Error saying what it was that did not come. */
export async function until<T>(probe: () => Promise<T> | T, withinMs = 120_000): Promise<NonNullable<T>> {
  for (const end = performance.now() + withinMs; ; await sleep(20)) {
    const value = await probe();
    if (value) return value;
    if (performance.now() > end) throw new Error(`not so after ${withinMs} ms: ${probe.toString()}`);
  }
}
