import { raceAbort } from '../../../core/race-abort.ts';

type UnderWay = { done: Promise<void>; waiters: number; stop: AbortController };

const underWay = new Map<string, UnderWay>();

/**
 * Does a piece of work once for all callers that want it at the same time. Each caller's signal ends only its own waiting; the work is
 * stopped when nobody waits for it any more.
 */
export async function shareWork(
  key: string,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  signal.throwIfAborted();
  const known = underWay.get(key) ?? begin();
  known.waiters += 1;
  try {
    await raceAbort(known.done, signal);
  } finally {
    known.waiters -= 1;
    if (known.waiters === 0) forget(known).stop.abort();
  }

  function begin(): UnderWay {
    const stop = new AbortController();
    const started = { done: work(stop.signal), waiters: 0, stop };
    started.done.catch(() => {}).finally(() => forget(started));
    underWay.set(key, started);
    return started;
  }

  function forget(one: UnderWay): UnderWay {
    if (underWay.get(key) === one) underWay.delete(key);
    return one;
  }
}
