import { and, asc, eq, inArray, isNotNull, isNull, ne, notExists, sql } from 'drizzle-orm';
import { isForRuns } from '../../core/engine-url.ts';
import type { Database } from '../database.ts';
import { poolWaits, replicas, runs, DEPLOYMENT_POOL } from '../schema.ts';
import type { Executor } from './transaction.ts';

/** A run that waits tries again every 5 s at the latest. */
const isWaiting = sql`${poolWaits.seenAt} > now() - interval '30 seconds'`;

/** Notes that a run waits for a pool. The time at which it began to wait stays. */
export async function noteWait(db: Executor, runId: string, pool: string): Promise<void> {
  const since = sql`case when ${isWaiting} and ${poolWaits.pool} = ${pool} then ${poolWaits.since} else now() end`;
  await db
    .insert(poolWaits)
    .values({ runId, pool })
    .onConflictDoUpdate({ target: poolWaits.runId, set: { pool, since, seenAt: sql`now()` } });
}

export async function endWait(db: Executor, runId: string): Promise<void> {
  await db.delete(poolWaits).where(eq(poolWaits.runId, runId));
}

/** Returns the runs that wait for a pool, the one that began first before the others. */
export function readWaits(db: Executor, pool: string): Promise<{ runId: string; since: Date }[]> {
  return db
    .select({ runId: poolWaits.runId, since: poolWaits.since })
    .from(poolWaits)
    .where(and(eq(poolWaits.pool, pool), isWaiting))
    .orderBy(asc(poolWaits.since), asc(poolWaits.runId));
}

type Queue = {
  owner: string | null;
  waiting: { runId: string; since: Date }[];
  /** Blocked runs without engines. */ blocked: string[];
};

/**
 * Returns the run that owns the deployment's engines, if one does. An evaluation may have those that take no weights; it keeps no run from the
 * others.
 */
export async function readPoolOwner(db: Database): Promise<string | null> {
  const pool = await db
    .select({ url: replicas.url, runId: replicas.runId })
    .from(replicas)
    .where(eq(replicas.pool, DEPLOYMENT_POOL));
  return pool.find(({ url, runId }) => runId !== null && isForRuns(url))?.runId ?? null;
}

/** Returns the run that owns the engines for which a run waits; null if the run does not wait, or nobody owns them. */
export async function readAwaitedOwner(db: Database, runId: string): Promise<string | null> {
  const [wait] = await db
    .select({ pool: poolWaits.pool })
    .from(poolWaits)
    .where(and(eq(poolWaits.runId, runId), isWaiting));
  if (!wait) return null;
  const isAwaited =
    // The engines that a run file names are kept as one text.
    wait.pool === DEPLOYMENT_POOL ? eq(replicas.pool, wait.pool) : inArray(replicas.url, wait.pool.split(' '));
  const owned = await db
    .select({ url: replicas.url, owner: replicas.runId })
    .from(replicas)
    .where(and(isAwaited, isNotNull(replicas.runId), ne(replicas.runId, runId)));
  return owned.find(({ url }) => isForRuns(url))?.owner ?? null;
}

/** Returns the run that owns the deployment's engines, if one does, those that wait for them, and those that wait for a person before. */
export async function readQueue(db: Database): Promise<Queue> {
  const owned = db.select().from(replicas).where(eq(replicas.runId, runs.id));
  const blocked = await db
    .select({ id: runs.id })
    .from(runs)
    // A rescoring needs no engines.
    .where(and(eq(runs.status, 'blocked'), isNull(runs.rescores), notExists(owned)))
    .orderBy(asc(runs.createdAt));
  return {
    owner: await readPoolOwner(db),
    waiting: await readWaits(db, DEPLOYMENT_POOL),
    blocked: blocked.map(({ id }) => id),
  };
}
