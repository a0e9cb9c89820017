import type { replicas } from '../../store/schema.ts';
import { Failure } from '../failure.ts';
import { InFlight } from '../in-flight.ts';
import { sleep } from '../sleep.ts';
import { raceAbort } from '../race-abort.ts';
import type { EngineConnection } from './connection.ts';
import { Placement } from './placement.ts';
import { Replica, ReplicaMemory } from './replica.ts';

export type ReplicaRow = typeof replicas.$inferSelect;

/** A replica that had `weightVersion` when it got the call. It counts one call in flight until `release` is called, which may happen more than once. */
export type Lease = {
  replica: Replica;
  weightVersion: string | null;
  changes: number;
  model: string | null;
  release: () => void;
};

/**
 * True when the call asks for a LoRA adapter, whose name is its pool's weight version. The whole reply is then the adapter's, whatever weight version the
 * engine reports of its base.
 */
export const isAdapter = ({ weightVersion, model }: Pick<Lease, 'weightVersion' | 'model'>): boolean =>
  weightVersion !== null && weightVersion === model;

type Caller = { id: string; runId: string | null };

type PoolOptions = {
  readRows: () => Promise<ReplicaRow[]>;
  connect: (url: string) => EngineConnection;
  /** The memory of earlier pools of this process on the same replicas. */
  memory?: PoolMemory;
  /** The deployment's own engines, which serve trials outside any run. */
  urls: readonly string[];
  log: (line: string) => void;
};

/**
 * Rows of replicas are reused for this time. A stale row may send a call to a replica whose weights change; this time is shorter than any
 * publication, and `verifyLease` then sees the change.
 */
const ROWS_MS = 200;
const POLL_MS = 100;

/** The known state of the replicas and their load. It holds only values, so that requests with connections of their own can share it. */
export class PoolMemory {
  readonly inFlight = new InFlight();
  readonly placement = new Placement((url) => this.inFlight.count(url));
  readonly complaints = new Map<string, string>();
  readonly replicas = new Map<string, ReplicaMemory>();

  replica(url: string): ReplicaMemory {
    const known = this.replicas.get(url) ?? new ReplicaMemory();
    this.replicas.set(url, known);
    return known;
  }
}

/** Finds a replica for each call, and tells afterwards whether its weight version held (invariant 11). */
export class EnginePool {
  readonly #options: PoolOptions;
  readonly #replicas = new Map<string, Replica>();
  readonly #memory: PoolMemory;
  #rows: { at: number; rows: Promise<ReplicaRow[]> } | null = null;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#memory = options.memory ?? new PoolMemory();
  }

  /**
   * Returns a replica in rotation whose weight version is the pool's and that is not in `except`. A trial keeps its replica while that is there and
   * not loaded. Waits for one until `deadline` (ms since the epoch). Then throws a 503, or a 429 while the replicas get new weights; both
   * may be tried again.
   */
  async lease(
    trial: Caller,
    deadline: number,
    signal: AbortSignal,
    except: ReadonlySet<string> = new Set(),
  ): Promise<Lease> {
    for (;;) {
      const finding = this.#find(trial, except);
      const lease = await raceAbort(finding, signal).catch((error: unknown) => {
        void finding.then(
          (late) => late?.release(),
          () => {},
        );
        throw error;
      });
      if (lease) return lease;
      if (Date.now() + POLL_MS > deadline) {
        const headers = { 'retry-after': '5' };
        if (await this.#isPaused(trial.runId))
          throw new Failure(
            429,
            'engine_paused',
            `the engines of run ${trial.runId} are getting new weights: try again`,
            { headers },
          );
        const whose = trial.runId === null ? 'this deployment' : `run ${trial.runId}`;
        throw new Failure(
          503,
          'engine_unavailable',
          `no engine of ${whose} is in rotation with the right weights: try again`,
          { headers },
        );
      }
      await sleep(POLL_MS, signal);
    }
  }

  /**
   * Checks the replica after a call. `same`: it has the same weights. `published`: new weights came meanwhile, and nobody can tell which
   * tokens are whose. `foreign`: something else than the pool's policy may have answered.
   */
  async verifyLease(lease: Lease): Promise<'same' | 'published' | 'foreign'> {
    const { replica, weightVersion, changes } = lease;
    if (isAdapter(lease))
      return replica.weightVersion().then(
        () => (replica.changes === changes ? 'same' : 'foreign'),
        () => 'foreign',
      );
    const url = replica.connection.url;
    const [now, rows] = await Promise.all([replica.weightVersion().catch(() => null), this.#readRows()]);
    const expected = rows.find((row) => row.url === url)?.weightVersion ?? null;
    if (expected !== weightVersion) return now === expected || now === weightVersion ? 'published' : 'foreign';
    return now === weightVersion && replica.changes === changes ? 'same' : 'foreign';
  }

  async close(): Promise<void> {
    await Promise.all([...this.#replicas.values()].map((replica) => replica.connection.close()));
  }

  /** Returns calls in flight and escapes from load, by replica, as this process saw them. */
  get loads(): { engine: string; inFlight: number; escapes: number }[] {
    const { replicas, inFlight, placement } = this.#memory;
    return [...replicas.keys()].map((engine) => ({
      engine,
      inFlight: inFlight.count(engine),
      escapes: placement.escapes(engine),
    }));
  }

  async #find(trial: Caller, except: ReadonlySet<string>): Promise<Lease | null> {
    const { urls } = this.#options;
    let open = (await this.#readRows()).filter(
      (row) =>
        row.inRotation &&
        (trial.runId === null ? urls.includes(row.url) : row.runId === trial.runId) &&
        !except.has(row.url) &&
        !this.#replica(row.url).isUnavailable,
    );
    for (;;) {
      const choice = this.#memory.placement.choose(trial.id, open);
      if (!choice) return null;
      const { to: row, from } = choice;
      // Counted before anything is awaited, because calls that come together would all find the same replica idle.
      const release = this.#memory.inFlight.enter(row.url);
      const lease = await this.#verify(row, trial.runId);
      // Reading its weight version may have taken a while, so it must still be in rotation.
      if (
        lease &&
        (await this.#readRows()).some(
          ({ url, inRotation, runId }) => url === row.url && inRotation && runId === row.runId,
        )
      ) {
        if (from) this.#memory.placement.escape(trial.id, from, row);
        return { ...lease, release };
      }
      release();
      open = open.filter((other) => other !== row);
    }
  }

  /** Returns null and logs a line when the replica is away or lacks its pool's weight version. */
  async #verify(row: ReplicaRow, runId: string | null): Promise<Omit<Lease, 'release'> | null> {
    const replica = this.#replica(row.url);
    try {
      const { weightVersion, model } = await this.#freshPolicy(replica, runId === null ? null : row.weightVersion);
      if (runId === null || (weightVersion !== null && weightVersion === row.weightVersion)) {
        this.#memory.complaints.delete(row.url);
        void replica.logprobsMode(model);
        return { replica, weightVersion, changes: replica.changes, model };
      }
      this.#complain(
        row.url,
        `engine ${row.url} says ${weightVersion ?? 'no weight version'}, its pool ${row.weightVersion ?? 'has none yet'}: left out`,
      );
    } catch (error) {
      this.#complain(
        row.url,
        `engine ${row.url} cannot be reached: ${error instanceof Error ? error.message : String(error)}`,
      );
      replica.markUnavailable();
    }
    return null;
  }

  /** Returns the weight version, reading it again when it is not the expected one, because a publication changes it without changing a connection. */
  async #freshPolicy(replica: Replica, expected: string | null): Promise<Pick<Lease, 'weightVersion' | 'model'>> {
    const policy = await policyOf(replica, expected);
    if (expected === null || policy.weightVersion === expected) return policy;
    replica.forget();
    return policyOf(replica, expected);
  }

  /** True when the run has engines and all of them are out of rotation, because of a publication. */
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
    const replica = new Replica(this.#options.connect(url), this.#memory.replica(url));
    this.#replicas.set(url, replica);
    return replica;
  }

  #complain(url: string, line: string): void {
    if (this.#memory.complaints.get(url) === line) return;
    this.#memory.complaints.set(url, line);
    this.#options.log(line);
  }
}

/**
 * The weight version of an engine outside any run is read again at this age, because nobody tells the gateway of its new weights. The
 * versions in the engine's replies take precedence.
 */
const WEIGHT_VERSION_MS = 1_000;

/** Returns the model to ask a replica for and its weight version: the adapter's if one has the expected name, else the base's. */
async function policyOf(replica: Replica, expected: string | null): Promise<Pick<Lease, 'weightVersion' | 'model'>> {
  const [weightVersion, models] = await Promise.all([
    replica.weightVersion(expected === null ? WEIGHT_VERSION_MS : undefined),
    replica.models(),
  ]);
  const adapter = models.find(({ id }) => id === expected);
  return adapter ? { weightVersion: adapter.id, model: adapter.id } : { weightVersion, model: models[0]?.id ?? null };
}
