import { isTransient } from '../core/transient.ts';
import { storeUnavailable } from './failure.ts';
import { sleep } from './sleep.ts';

const PAUSE_MS = 100;

/** Repeats a query until the store answers or `storeWaitMs` have passed. The query must be safe to repeat. */
export async function withStoreRetry<T>(
  deps: { settings: { storeWaitMs: number } },
  ask: () => Promise<T>,
): Promise<T> {
  const deadline = Date.now() + deps.settings.storeWaitMs;
  for (;;) {
    try {
      return await within(ask(), deadline - Date.now());
    } catch (error) {
      if (!isTransient(error)) throw error;
      if (Date.now() + PAUSE_MS > deadline) throw storeUnavailable(error);
      await sleep(PAUSE_MS);
    }
  }
}

/** Rejects after `ms`, because a server that hangs reports nothing. */
async function within<T>(answer: Promise<T>, ms: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(storeUnavailable()), Math.max(ms, 1));
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
