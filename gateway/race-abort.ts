/** Awaits a promise. If the signal aborts first, rejects with what `why` returns. */
export async function raceAbort<T>(
  awaited: Promise<T>,
  signal: AbortSignal,
  why: () => unknown = () => signal.reason,
): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const abort = () => aborted.reject(why());
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    return await Promise.race([awaited, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
