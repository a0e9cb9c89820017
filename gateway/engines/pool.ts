import type { replicas } from '../../store/schema.ts';
import { Failure } from '../failure.ts';
import { sleep } from '../sleep.ts';
import type { EngineConnection } from './connection.ts';
import { Replica } from './replica.ts';
import { preference } from './preference.ts';

export type ReplicaRow = typeof replicas.$inferSelect;

/** A replica that had `label` when the call was given to it. */
export type Lease = { replica: Replica; label: string | null; changes: number };

type PoolOptions = {
  readRows: () => Promise<ReplicaRow[]>;
  connect: (url: string) => EngineConnection;
  /** The deployment's own engines: they serve trials that belong to no run. */
  urls: readonly string[];
  log: (line: string) => void;
};

/** A stale view may send a call to a replica whose weights change: shorter than any publication, which `settle` then sees. */
const ROWS_MS = 200;
const POLL_MS = 100;

/** Finds each call a replica, and says afterwards whether its label held (rule 11). */
export class EnginePool {
  readonly #options: PoolOptions;
  readonly #replicas = new Map<string, Replica>();
  #rows: { at: number; rows: Promise<ReplicaRow[]> } | null = null;
  #complaints = new Map<string, string>();

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /**
   * A replica in rotation whose label is the pool's: always the same one for a trial, while it is there.
   * Waits for one until `deadline` (ms since the epoch); then a 503, or while they are given new weights a 429: both may be tried again.
   */
  async lease(trial: { id: string; runId: string | null }, deadline: number, signal: AbortSignal): Promise<Lease> {
    for (;;) {
      const lease = await this.#find(trial);
      if (lease) return lease;
      if (Date.now() + POLL_MS > deadline) {
        const headers = { 'retry-after': '5' };
        if (await this.#isPaused(trial.runId)) throw new Failure(429, 'engine_paused', `the engines of run ${trial.runId} are given new weights: try again`, { headers });
        const whose = trial.runId === null ? 'this deployment' : `run ${trial.runId}`;
        throw new Failure(503, 'engine_unavailable', `no engine of ${whose} is in rotation with the right weights`, { headers });
      }
      await sleep(POLL_MS, signal);
    }
  }

  /**
   * After the call: `same`; `published` when new weights came under way (nobody can tell which tokens are whose);
   * `foreign` when something else than the pool's policy may have answered.
   */
  async settle(lease: Lease): Promise<'same' | 'published' | 'foreign'> {
    const { replica, label, changes } = lease;
    const url = replica.connection.url;
    const [now, rows] = await Promise.all([replica.label().catch(() => null), this.#readRows()]);
    const expected = rows.find((row) => row.url === url)?.label ?? null;
    if (expected !== label) return now === expected || now === label ? 'published' : 'foreign';
    return now === label && replica.changes === changes ? 'same' : 'foreign';
  }

  async close(): Promise<void> {
    await Promise.all([...this.#replicas.values()].map((replica) => replica.connection.close()));
  }

  async #find(trial: { id: string; runId: string | null }): Promise<Lease | null> {
    const { urls } = this.#options;
    const rows = (await this.#readRows()).filter(
      (row) => row.inRotation && (trial.runId === null ? urls.includes(row.url) : row.runId === trial.runId),
    );
    for (const row of preference(trial.id, rows)) {
      const replica = this.#replica(row.url);
      if (replica.isCool) continue;
      try {
        const label = await this.#freshLabel(replica, trial.runId === null ? null : row.label);
        if (trial.runId === null || (label !== null && label === row.label)) {
          this.#complaints.delete(row.url);
          return { replica, label, changes: replica.changes };
        }
        this.#complain(row.url, `engine ${row.url} says ${label ?? 'no label'}, its pool ${row.label ?? 'has none yet'}: left out`);
      } catch (error) {
        this.#complain(row.url, `engine ${row.url} cannot be reached: ${error instanceof Error ? error.message : String(error)}`);
        replica.cool();
      }
    }
    return null;
  }

  /** A publication changes the label without changing a connection: one that is not as expected is read again. */
  async #freshLabel(replica: Replica, expected: string | null): Promise<string | null> {
    const label = await replica.label();
    if (expected === null || label === expected) return label;
    replica.forget();
    return replica.label();
  }

  /** Whether the run has engines and all of them are out of rotation: a publication is under way. */
  async #isPaused(runId: string | null): Promise<boolean> {
    const own = (await this.#readRows()).filter((row) => row.runId === runId);
    return runId !== null && own.length > 0 && own.every((row) => !row.inRotation);
  }

  #readRows(): Promise<ReplicaRow[]> {
    if (!this.#rows || Date.now() - this.#rows.at > ROWS_MS) {
      const read = { at: Date.now(), rows: this.#options.readRows() };
      read.rows.catch(() => {
        if (this.#rows === read) this.#rows = null;
      });
      this.#rows = read;
    }
    return this.#rows.rows;
  }

  #replica(url: string): Replica {
    const known = this.#replicas.get(url);
    if (known) return known;
    const replica = new Replica(this.#options.connect(url));
    this.#replicas.set(url, replica);
    return replica;
  }

  #complain(url: string, line: string): void {
    if (this.#complaints.get(url) === line) return;
    this.#complaints.set(url, line);
    this.#options.log(line);
  }
}
