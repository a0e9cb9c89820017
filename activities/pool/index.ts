import type { Deps } from '../deps.ts';
import { acquirePool, releasePool, returnPool, releaseUnusedPool } from './acquire-pool.ts';
import { borrowPool } from './borrow-pool.ts';
import { awaitPool, hasLostReplica, missingVersion, poolHas } from './check-pool.ts';
import { beginPublication, endPublication } from './publication.ts';

/** Activities of a run's engines: who has them, which weights they have, and publications. */
export const poolActivities = (deps: Deps) => ({
  acquirePool: acquirePool(deps),
  awaitPool: awaitPool(deps),
  beginPublication: beginPublication(deps),
  borrowPool: borrowPool(deps),
  endPublication: endPublication(deps),
  hasLostReplica: hasLostReplica(deps),
  missingVersion: missingVersion(deps),
  poolHas: poolHas(deps),
  releasePool: releasePool(deps),
  returnPool: returnPool(deps),
  releaseUnusedPool: releaseUnusedPool(deps),
});
