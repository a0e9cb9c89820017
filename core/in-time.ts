/**
 * Waits for an answer of another program. The signal ends the wait, and not that program's work.
 * @throws Error that says how long there was no answer; the signal's reason on abort
 */
export async function inTime<T>(request: Promise<T>, ms: number, signal?: AbortSignal): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(reject, ms, new Error(`no answer within ${ms / 1000} s`));
  const abort = (): void => reject(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  if (signal?.aborted) abort();
  try {
    return await Promise.race([request, late]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}
