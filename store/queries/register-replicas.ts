import { and, eq, inArray, isNotNull, isNull, like, not, notInArray, or, sql, type SQL } from 'drizzle-orm';
import { isForRuns, isRelayed, RELAY } from '../../core/engine-url.ts';
import type { Database } from '../database.ts';
import { DEPLOYMENT_POOL, FOUND_BY, relayWorkers, replicas, type FoundBy } from '../schema.ts';
import type { Executor, Transaction } from './transaction.ts';

const isInPool = eq(replicas.pool, DEPLOYMENT_POOL);
const hasWorker = sql`${replicas.url} in (select ${relayWorkers.url} from ${relayWorkers})`;
const isBehindRelay = or(like(replicas.url, 'relay:%'), like(replicas.url, '%+relay:%'));

/** An engine that was found. One that drains gets no new calls. */
export type FoundEngine = { url: string; draining: boolean };

/**
 * Makes `urls` the list of the deployment's pool. Replicas that are not in the list any more leave the pool, even if a run owns them, because
 * nothing may be sent there. The engines that others name stay, also those of a run's own file, and with `relay` those behind relay workers
 * that a gateway has, or that a run owns: their workers will be back. New replicas join the run that owns the pool, out of rotation until it publishes to them.
 */
export const registerReplicas = (db: Database, urls: readonly string[]): Promise<void> =>
  changePool(db, async (tx) => {
    const named = urls.filter((url) => url !== RELAY);
    const stays = urls.includes(RELAY) ? and(isBehindRelay, or(isNotNull(replicas.runId), hasWorker)) : undefined;
    // A list that a person changes takes a run's engines away for good.
    await tx
      .delete(replicas)
      .where(
        and(
          isInPool,
          eq(replicas.foundBy, 'list'),
          urls.length > 0 ? notInArray(replicas.url, named) : isNull(replicas.runId),
          stays ? not(stays) : undefined,
        ),
      );
    await join(tx, named, 'list');
  });

/** Adds replicas to the deployment's pool: those behind relay workers, or those that `foundBy` names. Those that are in it stay as they are. */
export async function joinReplicas(db: Database, urls: readonly string[], foundBy: FoundBy = 'list'): Promise<void> {
  const present = await db
    .select({ url: replicas.url })
    .from(replicas)
    .where(and(inArray(replicas.url, [...urls]), not(eq(replicas.foundBy, 'nobody'))));
  if (present.length < urls.length) await changePool(db, (tx) => join(tx, urls, foundBy));
}

/** Removes a replica whose relay worker has left, unless a run owns it: the run then counts it as lost until it is back. */
export async function leaveReplica(tx: Executor, url: string): Promise<void> {
  if (isRelayed(url)) await tx.delete(replicas).where(and(isInPool, eq(replicas.url, url), isNull(replicas.runId)));
}

/**
 * Brings the deployment's engines that `foundBy` names to what was found. `left` are those that it does not name any more. A gateway that
 * starts gives its own `list` instead: then all that are not among `found` leave, and what an earlier list named counts as found by `foundBy`.
 */
export const changeFound = (
  db: Database,
  foundBy: FoundBy,
  change: { found: readonly FoundEngine[] } & ({ left: readonly string[] } | { list: readonly string[] }),
): Promise<void> =>
  changePool(db, async (tx) => {
    const isNamed = eq(replicas.foundBy, foundBy);
    const found = change.found.map(({ url }) => url);
    const draining = change.found.filter((engine) => engine.draining).map(({ url }) => url);
    const serving = found.filter((url) => !draining.includes(url));
    if ('list' in change) {
      const isOfOldList = and(eq(replicas.foundBy, 'list'), notInArray(replicas.url, [...change.list]));
      await tx
        .update(replicas)
        .set({ foundBy })
        .where(and(isInPool, isOfOldList, inArray(replicas.url, found)));
    }
    await remove(
      tx,
      and(isNamed, 'list' in change ? notInArray(replicas.url, found) : inArray(replicas.url, [...change.left])),
    );
    // One that drains before it ever joined needs no row.
    await tx
      .update(replicas)
      .set({ draining: true })
      .where(and(isInPool, isNamed, inArray(replicas.url, draining)));
    await join(tx, serving, foundBy);
    await serveAgain(tx, and(isNamed, inArray(replicas.url, serving), replicas.draining), { draining: false });
  });

/** Adds an engine that a person names to the deployment's pool, or lets one serve again that a person drains. */
export const joinByHand = (db: Database, url: string): Promise<void> =>
  changePool(db, async (tx) => {
    await join(tx, [url], 'hand');
    await serveAgain(tx, and(eq(replicas.url, url), replicas.drainedByHand), { drainedByHand: false });
  });

export async function drainByHand(db: Database, url: string): Promise<void> {
  await db
    .update(replicas)
    .set({ drainedByHand: true })
    .where(and(isInPool, eq(replicas.url, url)));
}

/** Removes an engine that a person named. */
export const leaveByHand = (db: Database, url: string): Promise<void> =>
  changePool(db, (tx) => remove(tx, and(eq(replicas.url, url), eq(replicas.foundBy, 'hand'))));

/** Changes the deployment's pool. Until the end nobody else changes it, and no run gets it. */
const changePool = (db: Database, change: (tx: Transaction) => Promise<void>): Promise<void> =>
  db.transaction(async (tx) => {
    // The locks of rows leave out those that another gateway is about to add.
    await tx.execute(sql`select pg_advisory_xact_lock(hashtext('trialgate pool'))`);
    await lockedPool(tx);
    await change(tx);
    await forgetRemoved(tx);
  });

/** `acquirePool` locks the rows in the same order. */
const lockedPool = (tx: Transaction) => tx.select().from(replicas).where(isInPool).orderBy(replicas.url).for('update');

const remove = async (tx: Transaction, which: SQL | undefined): Promise<void> => {
  await tx
    .update(replicas)
    .set({ foundBy: 'nobody', draining: true, drainedByHand: false })
    .where(and(isInPool, which));
};

/**
 * Deletes what was removed. If a run would be left without any replica, one of its rows stays: it says whose the engines are that join later.
 * None of those stays that an evaluation has and that take no weights: nothing that joins is its own.
 */
async function forgetRemoved(tx: Transaction): Promise<void> {
  const pool = await lockedPool(tx);
  const isRemoved = ({ foundBy }: (typeof pool)[number]) => foundBy === 'nobody';
  const owned = pool.filter(isOfRun);
  const kept = owned.every(isRemoved) ? owned[0] : undefined;
  const urls = pool.filter((row) => isRemoved(row) && row !== kept).map(({ url }) => url);
  await tx.delete(replicas).where(inArray(replicas.url, urls));
}

/** Of those that name an engine, the first in `FOUND_BY` decides about it. */
async function join(tx: Transaction, urls: readonly string[], foundBy: FoundBy): Promise<void> {
  const later = [...FOUND_BY.slice(FOUND_BY.indexOf(foundBy) + 1), 'nobody' as const];
  await serveAgain(tx, and(inArray(replicas.url, [...urls]), inArray(replicas.foundBy, later)), {
    foundBy,
    draining: false,
  });
  const present = await tx
    .select({ url: replicas.url })
    .from(replicas)
    .where(inArray(replicas.url, [...urls]));
  const missing = urls.filter((url) => !present.some((row) => row.url === url));
  if (missing.length === 0) return;
  const owned = await ownedReplica(tx);
  const joining = owned ? { runId: owned.runId, weightVersion: owned.weightVersion, inRotation: false } : {};
  await tx
    .insert(replicas)
    .values(missing.map((url) => ({ url, foundBy, ...(isForRuns(url) ? joining : {}) })))
    .onConflictDoNothing();
}

/** Lets replicas serve again. If the run that owns the pool has published meanwhile, they stay out of rotation until it publishes to them. */
async function serveAgain(tx: Transaction, which: SQL | undefined, set: Partial<typeof replicas.$inferInsert>) {
  const owned = await ownedReplica(tx);
  const again = await tx.update(replicas).set(set).where(and(isInPool, which)).returning({ url: replicas.url });
  if (!owned) return;
  const { runId, weightVersion } = owned;
  const isSame = sql<boolean>`${replicas.runId} is not distinct from ${runId} and ${replicas.weightVersion} is not distinct from ${weightVersion}`;
  await tx
    .update(replicas)
    .set({ runId, weightVersion, inRotation: sql`${replicas.inRotation} and ${isSame}` })
    .where(inArray(replicas.url, again.map(({ url }) => url).filter(isForRuns)));
}

/** True for a replica of the run that owns the deployment's pool. An evaluation may have other engines of it, which take no weights. */
const isOfRun = ({ url, runId }: Pick<typeof replicas.$inferSelect, 'url' | 'runId'>): boolean =>
  runId !== null && isForRuns(url);

/** Returns a replica of the run that owns the deployment's pool, by preference one that does not drain. */
async function ownedReplica(tx: Transaction): Promise<typeof replicas.$inferSelect | undefined> {
  const owned = (await lockedPool(tx)).filter(isOfRun);
  return owned.find(({ draining, drainedByHand }) => !draining && !drainedByHand) ?? owned[0];
}
