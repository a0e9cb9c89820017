import { Interrupted } from './exit.ts';

/**
 * Returns a signal that aborts at the first SIGINT, SIGTERM or SIGHUP. Later ones change nothing, because a terminal, npm and our
 * launcher may each send one. Everything stops within a bounded time, so nobody has to press Ctrl-C twice.
 */
export function shutdownSignal(): AbortSignal {
  const controller = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(name, () => controller.abort(new Interrupted()));
  return controller.signal;
}
