import { request } from 'undici';
import type { Log } from '../../../core/log.ts';
import { isRelayed, relayPath } from '../../../core/engine-url.ts';
import { relayKey } from '../../../core/keys.ts';
import { sleep } from '../../../core/sleep.ts';
import type { Database } from '../../../store/database.ts';
import { joinReplicas } from '../../../store/queries/register-replicas.ts';
import {
  claimWorker,
  LEASE_SECONDS,
  readLeases,
  releaseWorker,
  removeEnded,
  renewWorker,
  type RelayLease,
} from '../../../store/queries/relay-leases.ts';
import type { EngineConnection } from '../../engines/connection.ts';
import { RelayHub, type Lease } from '../../relay/hub.ts';
import { RelayedConnection } from './relayed-connection.ts';

/** Leases are renewed at this interval, and the workers' replicas written again: the store may have failed, or another gateway removed them. */
const RENEW_MS = 2_000;
/** A worker's replica stays for this time after the end of the worker's lease. */
const AWAY_SECONDS = 60;
const CLAIM_MS = LEASE_SECONDS * 1500;
const ASK_AGAIN_MS = 250;

type Options = { db: Database; log: Log; secret: string; graceMs?: number | undefined };

/**
 * The relay workers of this gateway, and the way to those of other gateways. In the store each worker has a replica, and a lease of the one
 * gateway that holds its connection.
 */
export class RelayWorkers {
  readonly hub: RelayHub;
  readonly #db: Database;
  readonly #log: Log;
  readonly #key: string;
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #connections = new Map<string, RelayedConnection>();
  readonly #elsewhere = new Map<string, RelayLease>();
  #address = '';
  #writing: Promise<void> = Promise.resolve();
  #isFailing = false;

  constructor({ db, log, secret, graceMs }: Options) {
    this.#db = db;
    this.#log = log;
    this.#key = relayKey(secret);
    this.hub = new RelayHub({
      log,
      ...(graceMs === undefined ? {} : { graceMs }),
      claim: (worker) => this.#claim(worker),
      onJoin: () => this.#write(() => this.#join()),
      onLeave: ({ id, epoch }) => this.#write(() => releaseWorker(db, id, epoch)),
    });
    this.#timer = setInterval(() => this.#write(() => this.#renew()), RENEW_MS);
    this.#timer.unref();
  }

  /** Sets the address at which other gateways reach this one. */
  serveAt(address: string): void {
    this.#address = address;
  }

  /** Returns the rows without those of relay workers that no gateway has. */
  async reachable<Row extends { url: string }>(rows: readonly Row[]): Promise<Row[]> {
    if (rows.some(({ url }) => isRelayed(url) && !this.hub.knows(url))) await this.#readElsewhere();
    return rows.filter(({ url }) => !isRelayed(url) || this.hub.knows(url) || this.#elsewhere.has(url));
  }

  connection(url: string): EngineConnection {
    const known = this.#connections.get(url);
    if (known) return known;
    const connection = new RelayedConnection({
      url,
      here: this.hub.connection(url),
      isHere: () => this.hub.knows(url),
      elsewhere: () => {
        const lease = this.#elsewhere.get(url);
        return lease ? { via: lease.gateway, key: this.#key, epoch: lease.epoch } : null;
      },
    });
    this.#connections.set(url, connection);
    return connection;
  }

  /** Returns the connection to a worker that another gateway has; null when none has it. */
  async elsewhere(id: string): Promise<EngineConnection | null> {
    await this.#readElsewhere();
    const lease = [...this.#elsewhere.values()].find((each) => each.id === id);
    return lease ? this.connection(lease.url) : null;
  }

  /** Closes the workers' sockets and waits for what is being written. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.hub.close();
    await this.#writing;
    await Promise.all([...this.#connections.values()].map((connection) => connection.close()));
  }

  /** Takes a worker for this gateway. A gateway that has another process of its name is asked to give that up. One that is dead loses it when its lease ends. */
  async #claim(worker: Omit<Lease, 'epoch'>): Promise<number> {
    let asked: string | null = null;
    for (const end = Date.now() + CLAIM_MS; ; await sleep(ASK_AGAIN_MS)) {
      const claimed = await claimWorker(this.#db, { ...worker, gateway: this.#address });
      if ('epoch' in claimed) return claimed.epoch;
      if (Date.now() > end) throw new Error(`the gateway at ${claimed.owner} does not give it up`);
      if (asked === claimed.owner) continue;
      asked = claimed.owner;
      await this.#askToGiveUp(worker.id, asked).catch(() => {});
    }
  }

  async #askToGiveUp(id: string, gateway: string): Promise<void> {
    const { body } = await request(`${gateway}${relayPath(id)}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${this.#key}` },
      signal: AbortSignal.timeout(RENEW_MS),
    });
    await body.dump();
  }

  async #readElsewhere(): Promise<void> {
    const leases = await readLeases(this.#db);
    this.#elsewhere.clear();
    for (const lease of leases) if (lease.gateway !== this.#address) this.#elsewhere.set(lease.url, lease);
  }

  async #renew(): Promise<void> {
    for (const lease of this.hub.leases)
      if (!(await renewWorker(this.#db, { ...lease, gateway: this.#address }))) this.hub.lose(lease);
    await this.#join();
    await removeEnded(this.#db, AWAY_SECONDS);
  }

  async #join(): Promise<void> {
    const { urls } = this.hub;
    if (urls.length > 0) await joinReplicas(this.#db, urls);
  }

  /** One write after the other, so that a worker that leaves and comes back is there in the end. */
  #write(work: () => Promise<void>): void {
    this.#writing = this.#writeAfter(this.#writing, work);
  }

  async #writeAfter(before: Promise<void>, work: () => Promise<void>): Promise<void> {
    await before;
    try {
      await work();
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing)
        this.#log(`relay workers cannot be written to the store: ${String(error)}`, { level: 'error' });
      this.#isFailing = true;
    }
  }
}
