import { Interrupted } from './exit.ts';

const ENDING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * Returns a signal that aborts at the first SIGINT, SIGTERM or SIGHUP. Later ones change nothing, because a terminal, npm and our
 * launcher may each send one. Everything stops within a bounded time, so nobody has to press Ctrl-C twice.
 */
export function shutdownSignal(): AbortSignal {
  const controller = new AbortController();
  for (const name of ENDING) process.on(name, () => controller.abort(new Interrupted()));
  return controller.signal;
}

/** Runs `body` with such a signal. Before and afterwards a signal ends the process as usual. */
export async function withShutdownSignal<T>(body: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const abort = (): void => controller.abort(new Interrupted());
  for (const name of ENDING) process.on(name, abort);
  try {
    return await body(controller.signal);
  } finally {
    for (const name of ENDING) process.off(name, abort);
  }
}
