import { and, eq, lt, not, or, sql, type SQL } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { relayWorkers } from '../schema.ts';
import { leaveReplica } from './register-replicas.ts';

export type RelayLease = typeof relayWorkers.$inferSelect;
type Claim = Pick<RelayLease, 'id' | 'url' | 'gateway' | 'session'>;

/** A gateway that has not renewed a lease for this time has lost it. */
export const LEASE_SECONDS = 10;
/** The leases that ended so many seconds ago or earlier. */
const endedFor = (seconds: number): SQL =>
  lt(relayWorkers.renewedAt, sql`now() - make_interval(secs => ${LEASE_SECONDS + seconds})`);
const ended = endedFor(0);

/**
 * Gives a worker to a gateway. It is refused while another gateway has the lease, unless the same process of the worker asks, which has left
 * the other one. Returns the epoch of the new lease, or the gateway that has the worker.
 */
export async function claimWorker(db: Database, claim: Claim): Promise<{ epoch: number } | { owner: string }> {
  const { id, url, gateway, session } = claim;
  for (;;) {
    const [claimed] = await db
      .insert(relayWorkers)
      .values(claim)
      .onConflictDoUpdate({
        target: relayWorkers.id,
        set: { url, gateway, session, epoch: sql`excluded.epoch`, renewedAt: sql`now()` },
        setWhere: or(eq(relayWorkers.gateway, gateway), eq(relayWorkers.session, session), ended),
      })
      .returning({ epoch: relayWorkers.epoch });
    if (claimed) return claimed;
    const [row] = await db.select().from(relayWorkers).where(eq(relayWorkers.id, id));
    if (row) return { owner: row.gateway };
  }
}

/** Renews a lease, also one that was removed because it had ended. Returns false when another gateway has taken the worker. */
export async function renewWorker(db: Database, lease: Claim & { epoch: number }): Promise<boolean> {
  const renewed = await db
    .insert(relayWorkers)
    .values(lease)
    .onConflictDoUpdate({
      target: relayWorkers.id,
      set: { renewedAt: sql`now()` },
      setWhere: eq(relayWorkers.epoch, lease.epoch),
    })
    .returning({ id: relayWorkers.id });
  return renewed.length > 0;
}

/** Ends a lease, unless it is another gateway's already. Its worker's replica leaves the pool. */
export const releaseWorker = (db: Database, id: string, epoch: number): Promise<void> =>
  remove(db, and(eq(relayWorkers.id, id), eq(relayWorkers.epoch, epoch)));

/** Removes the leases that ended so many seconds ago or earlier: their gateways were killed, and their workers have not come back. */
export const removeEnded = (db: Database, seconds: number): Promise<void> => remove(db, endedFor(seconds));

/** The next gateway that takes such a worker waits for the end of the transaction, so its replica is not removed after it joined. */
const remove = (db: Database, which: SQL | undefined): Promise<void> =>
  db.transaction(async (tx) => {
    const removed = await tx.delete(relayWorkers).where(which).returning({ url: relayWorkers.url });
    for (const { url } of removed) await leaveReplica(tx, url);
  });

/** Returns the leases that have not ended. */
export const readLeases = (db: Database): Promise<RelayLease[]> => db.select().from(relayWorkers).where(not(ended));
