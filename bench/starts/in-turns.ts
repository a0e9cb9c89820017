/**
 * Calls `work` with each number below `count`, `atOnce` of them at the same time.
 * @throws the reason of the signal when it was aborted on the way, because then not all was done
 */
export async function inTurns(
  count: number,
  { atOnce, signal }: { atOnce: number; signal: AbortSignal },
  work: (index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  await allEnded(
    Array.from({ length: atOnce }, async () => {
      while (next < count && !signal.aborted) await work(next++);
    }),
    () => (next = count),
  );
  signal.throwIfAborted();
}

/** Waits for all, also when one fails, so that nothing runs beside what is measured next. */
export async function allEnded<T>(all: Promise<T>[], onFailure: () => void): Promise<T[]> {
  try {
    return await Promise.all(all);
  } catch (error) {
    onFailure();
    await Promise.allSettled(all);
    throw error;
  }
}
