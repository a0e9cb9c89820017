import { Interrupted } from './exit.ts';

/**
 * Aborts at the first SIGINT, SIGTERM or SIGHUP. Later ones change nothing (a terminal, npm and our launcher may each send
 * theirs): what stops is bounded in time, so nobody has to press twice.
 */
export function untilSignalled(): AbortSignal {
  const controller = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => controller.abort(new Interrupted()));
  return controller.signal;
}
