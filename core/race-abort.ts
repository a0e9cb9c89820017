/** Awaits a promise. If the signal aborts first, rejects with what `why` returns. `Promise.race` would create more promises for each call. */
export function raceAbort<T>(
  awaited: Promise<T>,
  signal: AbortSignal,
  why: () => unknown = () => signal.reason,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(why());
    const settle = () => signal.removeEventListener('abort', abort);
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
    awaited.then(settle, settle);
    awaited.then(resolve, reject);
  });
}
