import { isTransient } from '../core/transient.ts';
import { storeUnavailable } from './failure.ts';
import { sleep } from '../core/sleep.ts';

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
function within<T>(answer: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(storeUnavailable()), Math.max(ms, 1));
    const settle = () => clearTimeout(timer);
    answer.then(settle, settle);
    answer.then(resolve, reject);
  });
}
