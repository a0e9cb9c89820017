import { ApplicationFailure } from '@temporalio/common';
import { and, eq, inArray, isNotNull, ne, not, or } from 'drizzle-orm';
import { isForRuns, NOT_IN_RUNS } from '../../core/engine-url.ts';
import { isDraining } from '../../store/queries/is-draining.ts';
import { endWait, noteWait, readWaits } from '../../store/queries/pool-queue.ts';
import type { Executor } from '../../store/queries/transaction.ts';
import { DEPLOYMENT_POOL, replicas, runs } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import { isRunning } from '../temporal/is-running.ts';
import { requireAwaited } from '../temporal/require-awaited.ts';
import { readRun } from '../run/read-run.ts';

/**
 * Gives the run the engines of its pool that runs can use. The pool belongs to one run at a time. A busy pool is retried until its owner
 * ends or the activity's deadline passes; of several runs that wait, the one that began first gets it.
 */
export const acquirePool =
  (deps: Deps) =>
  ({ runId }: { runId: string }): Promise<string[]> =>
    acquire(deps, runId, isForRuns);

/** Gives an evaluation the servers that it names and that take no weights. They serve at once, because nothing is published to them. */
export const acquireServers = (deps: Deps, runId: string): Promise<string[]> =>
  acquire(deps, runId, (url) => !isForRuns(url), { inRotation: true });

async function acquire(
  deps: Deps,
  runId: string,
  isUsable: (url: string) => boolean,
  set: { inRotation?: true } = {},
): Promise<string[]> {
  const config = await readRun(deps.db, runId);
  const pool = config.engines.length > 0 ? runId : DEPLOYMENT_POOL;
  const queue = config.engines.length > 0 ? config.engines.toSorted().join(' ') : DEPLOYMENT_POOL;
  await releaseDeadOwners(deps, runId, pool);
  await noteWait(deps.db, runId, queue);
  return withRunReason(deps, runId, () =>
    deps.db.transaction(async (tx) => {
      if (config.engines.length > 0) {
        await tx
          .insert(replicas)
          .values(config.engines.map((url) => ({ url, pool, inRotation: false })))
          .onConflictDoNothing();
      }
      const isNamed = config.engines.length > 0 ? inArray(replicas.url, config.engines) : eq(replicas.pool, pool);
      const inPool = and(isNamed, not(isDraining));
      const all = await tx.select().from(replicas).where(inPool).orderBy(replicas.url).for('update');
      const rows = all.filter(({ url }) => isUsable(url));
      const busy = rows.find((row) => row.runId !== null && row.runId !== runId);
      if (busy)
        throw ApplicationFailure.create({
          type: 'pool_busy',
          message: `waiting for ${engineName(busy.url)}: run ${busy.runId} has it until that run ends or releases it`,
        });
      const [first] = await readWaits(tx, queue);
      const isOwner = rows.some((row) => row.runId === runId);
      if (!isOwner && first && first.runId !== runId)
        throw ApplicationFailure.create({
          type: 'pool_busy',
          message: `waiting for engines: run ${first.runId} began to wait before this one`,
        });
      if (all.length === 0) {
        const message =
          'no engine is registered, or all of them drain (`npx trialgate engine list`): start the gateway with --engine URL, or name engines in the run file';
        throw ApplicationFailure.create({ type: 'engine_unavailable', message });
      }
      if (rows.length === 0) throw ApplicationFailure.nonRetryable(`${all[0]?.url} ${NOT_IN_RUNS}`, 'bad_input');
      const urls = rows.map(({ url }) => url);
      await tx
        .update(replicas)
        .set({ runId, ...set, updatedAt: new Date() })
        .where(inArray(replicas.url, urls));
      await endWait(tx, runId);
      return urls.toSorted();
    }),
  );
}

/** Writes the reason for a wait to `runs.reason`, where people look. */
async function withRunReason<T>(deps: Deps, runId: string, work: () => Promise<T>): Promise<T> {
  const writeReason = (reason: string | null) => deps.db.update(runs).set({ reason }).where(eq(runs.id, runId));
  try {
    const done = await work();
    await writeReason(null);
    return done;
  } catch (error) {
    if (error instanceof ApplicationFailure) await writeReason(error.message);
    // Otherwise a run that is not tried again would keep its place before the others in the queue.
    if (error instanceof ApplicationFailure && error.nonRetryable) await endWait(deps.db, runId);
    throw error;
  }
}

/** Releases the pool at the end of a run. When an evaluation on demand still uses the pool, that evaluation releases it at its own end. */
export const releasePool =
  (deps: Deps) =>
  async (input: { runId: string }): Promise<void> => {
    if (!(await isRunning(deps, `${input.runId}/publish`))) await release(deps.db, input.runId);
  };

/**
 * Releases the pool of a blocked run. Fails, to be tried again, while a publication, a repair or an evaluation on demand uses the pool.
 * Returns true when the run had engines. A try that was given up releases nothing, because the run may have been resumed since.
 */
export const releaseUnusedPool =
  (deps: Deps) =>
  ({ runId }: { runId: string }): Promise<boolean> =>
    deps.db.transaction(async (tx) => {
      // An evaluation that begins after the checks waits for these rows, and then finds no engine of the run. So does a resumed run, if
      // this try is given up after them.
      const rows = await tx.select().from(replicas).where(eq(replicas.runId, runId)).for('update');
      await requireAwaited(deps);
      if (await isRunning(deps, `${runId}/publish`))
        throw ApplicationFailure.retryable(`${runId}/publish uses the engines of run ${runId}`, 'pool_busy');
      if (rows.length > 0) await release(tx, runId);
      else await endWait(tx, runId);
      return rows.length > 0;
    });

/** Releases the pool at the end of an evaluation on demand, unless its run is under way and keeps it. */
export const returnPool =
  (deps: Deps) =>
  async (input: { runId: string }): Promise<void> => {
    if (!(await isRunning(deps, input.runId))) await release(deps.db, input.runId);
  };

/** Makes the pool free for others. Removes the engines that only this run's file named, and one that has left but was kept for this run. */
async function release(db: Executor, runId: string): Promise<void> {
  await endWait(db, runId);
  const isNeedless = or(ne(replicas.pool, DEPLOYMENT_POOL), eq(replicas.foundBy, 'nobody'));
  await db.delete(replicas).where(and(eq(replicas.runId, runId), isNeedless));
  await db
    .update(replicas)
    .set({ runId: null, weightVersion: null, inRotation: true })
    .where(eq(replicas.runId, runId));
}

/** Releases the pools of terminated runs, which could not do that themselves, after their last publication has ended. */
async function releaseDeadOwners(deps: Deps, runId: string, pool: string): Promise<void> {
  const owned = and(eq(replicas.pool, pool), isNotNull(replicas.runId), ne(replicas.runId, runId));
  for (const { owner } of await deps.db.selectDistinct({ owner: replicas.runId }).from(replicas).where(owned)) {
    if (owner === null || (await isRunning(deps, owner)) || (await isRunning(deps, `${owner}/publish`))) continue;
    await release(deps.db, owner);
  }
}

/** The deployment's own vLLM listens on a Unix socket, whose path says nothing to a person. */
const engineName = (url: string): string => (url.startsWith('unix:') ? "the deployment's engine" : `engine ${url}`);
