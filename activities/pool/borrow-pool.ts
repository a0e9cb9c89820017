import { ApplicationFailure } from '@temporalio/common';
import { and, desc, eq, isNull, not } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import { isDraining } from '../../store/queries/is-draining.ts';
import { endWait } from '../../store/queries/pool-queue.ts';
import { policyVersions, replicas } from '../../store/schema.ts';
import { isEvaluatedAsServed } from '../../core/run-config/run-config.ts';
import { acquirePool, acquireServers } from './acquire-pool.ts';
import type { Deps } from '../deps.ts';
import { missingCheckpoint } from '../run/missing-checkpoint.ts';
import { readRun } from '../run/read-run.ts';
import { isRunning } from '../temporal/is-running.ts';
import { nonRetryable } from '../temporal/non-retryable.ts';

export type BorrowedPool = { version: number; /** True when the pool has the version already. */ published: boolean };

/**
 * Gets engines for an evaluation on demand. A run that is under way shares its engines with the version that they have. Otherwise the
 * engines are acquired, and the version (the newest unless another is named) is still to be published. Engines that take no weights serve
 * the only version as it is. Fails with `pool_busy` while the engines are busy.
 */
export const borrowPool =
  (deps: Deps) =>
  (input: { runId: string; version?: number }): Promise<BorrowedPool> =>
    nonRetryable(async () => {
      const { runId, version } = input;
      const acquired = (acquiring: Promise<string[]>) =>
        acquiring.catch(async (error: unknown) => {
          await endWait(deps.db, runId);
          return asBusy(error);
        });
      if (isEvaluatedAsServed(await readRun(deps.db, runId))) {
        if (version !== undefined && version !== AS_SERVED)
          throw new TrialgateError('bad_input', `run ${runId} has no policy version ${version}: ${ONLY_AS_SERVED}`);
        await acquired(acquireServers(deps, runId));
        return { version: AS_SERVED, published: true };
      }
      if (await isRunning(deps, runId)) return { version: await sharedVersion(deps, runId, version), published: true };
      const versions = and(
        eq(policyVersions.runId, runId),
        version === undefined ? isNull(policyVersions.prunedAt) : eq(policyVersions.version, version),
      );
      const [row] = await deps.db
        .select()
        .from(policyVersions)
        .where(versions)
        .orderBy(desc(policyVersions.version))
        .limit(1);
      if (!row) throw new TrialgateError('bad_input', `run ${runId} has no policy version ${version ?? 'yet'}`);
      if (row.prunedAt !== null) throw new TrialgateError('bad_input', missingCheckpoint(row));
      await acquired(acquirePool(deps)({ runId }));
      return { version: row.version, published: false };
    });

/** The version under which the record has a model that its server serves, whatever its weights are. */
const AS_SERVED = 0;
const ONLY_AS_SERVED = 'its servers take no weights, so only the model that they serve can be evaluated, as version 0';

/** Turns a busy pool into a failure that is not retried: the caller waits, so that others can have their turn meanwhile. */
function asBusy(error: unknown): never {
  if (!(error instanceof ApplicationFailure) || error.nonRetryable) throw error;
  throw ApplicationFailure.create({ type: 'pool_busy', message: error.message, nonRetryable: true, cause: error });
}

async function sharedVersion({ db }: Deps, runId: string, wanted: number | undefined): Promise<number> {
  // The lock waits until `releaseUnusedPool` has released the engines of a blocked run.
  const rows = await db
    .select()
    .from(replicas)
    .where(and(eq(replicas.runId, runId), eq(replicas.inRotation, true), not(isDraining)))
    .for('share');
  const [version] = rows.flatMap(({ weightVersion }) =>
    weightVersion?.startsWith(`${runId}@`) ? [Number(weightVersion.slice(runId.length + 1))] : [],
  );
  if (version === undefined)
    throw ApplicationFailure.create({
      type: 'pool_busy',
      message: `run ${runId} has no engine with a version: it has not published yet, or it is blocked and its engines were released: resume it, or cancel it to evaluate one of its versions`,
      nonRetryable: true,
    });
  if (wanted === undefined || wanted === version) return version;
  const message = `run ${runId} is under way and its engines have version ${version}: evaluate that one, or stop the run before`;
  throw new TrialgateError('bad_input', `${message} (npx trialgate stop ${runId})`);
}
