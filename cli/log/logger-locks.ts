import type pg from 'pg';
import type { Database } from '../../store/database.ts';

/** Lets one process of the whole deployment write a run to a logger. PostgreSQL releases it when the process or its connection ends. */
export type LoggerLock = {
  /** Aborts when the connection, and with it the lock, is lost. */
  lost: AbortSignal;
  /** @throws when the lock is lost */
  confirmHeld(): Promise<void>;
  release(): Promise<void>;
};

/** The store ends a connection that is silent for a minute. */
const ALIVE_MS = 20_000;

/** The locks of this process, all on one connection. */
export class LoggerLocks {
  readonly #db: Database;
  readonly #held = new Map<string, AbortController>();
  /** Keys that are being asked for: PostgreSQL would give a key to the same connection twice. */
  readonly #asked = new Set<string>();
  #connection: { client: pg.PoolClient; alive: NodeJS.Timeout } | null = null;
  /** The query before. A connection takes one at a time. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(db: Database) {
    this.#db = db;
  }

  /** Takes a lock, or returns null if it is taken, here or in another process. */
  async take(key: string): Promise<LoggerLock | null> {
    if (this.#held.has(key) || this.#asked.has(key)) return null;
    this.#asked.add(key);
    try {
      const rows = await this.#query('select pg_try_advisory_lock(hashtextextended($1, 0)) as taken', [key]);
      if (rows[0]?.taken !== true) return null;
    } finally {
      this.#asked.delete(key);
    }
    const lost = new AbortController();
    this.#held.set(key, lost);
    return {
      lost: lost.signal,
      confirmHeld: async () => {
        lost.signal.throwIfAborted();
        await this.#query('select true as taken');
        lost.signal.throwIfAborted();
      },
      release: async () => {
        // After a loss another process, or another lock of this one, may have the key.
        if (this.#held.get(key) !== lost) return;
        await this.#query('select pg_advisory_unlock(hashtextextended($1, 0)) as taken', [key]).catch(() => {});
        this.#held.delete(key);
      },
    };
  }

  /** Ends the connection, and with it what is still held. */
  close(): void {
    this.#lose(this.#connection?.client);
  }

  #query(text: string, values: string[] = []): Promise<{ taken: boolean }[]> {
    const answer = this.#last.then(async () => {
      const client = await this.#connected();
      try {
        return (await client.query<{ taken: boolean }>(text, values)).rows;
      } catch (error) {
        this.#lose(client);
        throw error;
      }
    });
    this.#last = answer.catch(() => {});
    return answer;
  }

  async #connected(): Promise<pg.PoolClient> {
    if (this.#connection) return this.#connection.client;
    const client = await this.#db.$client.connect();
    client.once('end', () => this.#lose(client));
    const alive = setInterval(() => void this.#query('select true as taken').catch(() => {}), ALIVE_MS);
    this.#connection = { client, alive };
    return client;
  }

  #lose(client: pg.PoolClient | undefined): void {
    if (client === undefined || this.#connection?.client !== client) return;
    clearInterval(this.#connection.alive);
    this.#connection = null;
    const held = [...this.#held.values()];
    this.#held.clear();
    client.release(true);
    for (const each of held) each.abort(new Error('the connection to PostgreSQL was lost, and with it the lock'));
  }
}
