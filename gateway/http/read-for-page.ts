import { Failure } from '../failure.ts';
import { withStoreRetry } from '../with-store-retry.ts';
import type { GatewayDeps } from './deps.ts';

/** PostgreSQL's code when it cancels a statement, here at the time limit of the reader's connections. */
const CANCELLED = '57014';

/** Asks the record for what a person looks at. A query that takes too long is refused, so that it never slows calls for long. The wait for other readers does not count. */
export async function readForPage<T>(
  deps: Pick<GatewayDeps, 'settings' | 'readGate'>,
  ask: () => Promise<T>,
): Promise<T> {
  try {
    return await deps.readGate.pass(() => withStoreRetry(deps, ask));
  } catch (error) {
    for (let cause = error; cause instanceof Error; cause = cause.cause)
      if ('code' in cause && cause.code === CANCELLED) throw tooSlow(error);
    throw error;
  }
}

const tooSlow = (cause: unknown) =>
  new Failure(503, 'query_too_slow', 'the database took too long to read this: ask for less of it, or try again', {
    cause,
  });
