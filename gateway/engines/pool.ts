import type { replicas } from '../../store/schema.ts';
import { Failure } from '../failure.ts';
import { InFlight } from '../in-flight.ts';
import { sleep } from '../sleep.ts';
import { unlessAborted } from '../unless-aborted.ts';
import type { EngineConnection } from './connection.ts';
import { Placement } from './placement.ts';
import { Replica, ReplicaMemory } from './replica.ts';

export type ReplicaRow = typeof replicas.$inferSelect;

/** A replica that had `label` when the call was given to it. It counts as one in flight until `leave` is called, once or more. */
export type Lease = { replica: Replica; label: string | null; changes: number; model: string | null; leave: () => void };

/** A LoRA adapter has its pool's label for its name, by which the call asks for it: all of the reply is its, whatever the engine says of its base. */
export const isAdapter = ({ label, model }: Pick<Lease, 'label' | 'model'>): boolean => label !== null && label === model;

type Caller = { id: string; runId: string | null };

type PoolOptions = {
  readRows: () => Promise<ReplicaRow[]>;
  connect: (url: string) => EngineConnection;
  /** What other pools of this process know of the same replicas. */
  memory?: PoolMemory;
  /** The deployment's own engines: they serve trials that belong to no run. */
  urls: readonly string[];
  log: (line: string) => void;
};

/** A stale view may send a call to a replica whose weights change: shorter than any publication, which `settle` then sees. */
const ROWS_MS = 200;
const POLL_MS = 100;

/** What is known of the replicas and their load. Values alone: where each request has its own connections it may still be shared. */
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

/** Finds each call a replica, and says afterwards whether its label held (invariant 11). */
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
   * A replica in rotation whose label is the pool's, and that is none of `except`: the same one for a trial, while it is there
   * and not loaded. Waits for one until `deadline` (ms since the epoch); then a 503, or while they are given new weights a 429:
   * both may be tried again.
   */
  async lease(trial: Caller, deadline: number, signal: AbortSignal, except: ReadonlySet<string> = new Set()): Promise<Lease> {
    for (;;) {
      const finding = this.#find(trial, except);
      const lease = await unlessAborted(finding, signal).catch((error: unknown) => {
        void finding.then((late) => late?.leave(), () => {});
        throw error;
      });
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
    if (isAdapter(lease)) return replica.label().then(() => (replica.changes === changes ? 'same' : 'foreign'), () => 'foreign');
    const url = replica.connection.url;
    const [now, rows] = await Promise.all([replica.label().catch(() => null), this.#readRows()]);
    const expected = rows.find((row) => row.url === url)?.label ?? null;
    if (expected !== label) return now === expected || now === label ? 'published' : 'foreign';
    return now === label && replica.changes === changes ? 'same' : 'foreign';
  }

  async close(): Promise<void> {
    await Promise.all([...this.#replicas.values()].map((replica) => replica.connection.close()));
  }

  /** Calls in flight and escapes from load, by replica, as this process saw them. */
  get loads(): { engine: string; inFlight: number; escapes: number }[] {
    const { replicas, inFlight, placement } = this.#memory;
    return [...replicas.keys()].map((engine) => ({ engine, inFlight: inFlight.count(engine), escapes: placement.escapes(engine) }));
  }

  async #find(trial: Caller, except: ReadonlySet<string>): Promise<Lease | null> {
    const { urls } = this.#options;
    let open = (await this.#readRows()).filter(
      (row) => row.inRotation && (trial.runId === null ? urls.includes(row.url) : row.runId === trial.runId) && !except.has(row.url) && !this.#replica(row.url).isCool,
    );
    for (;;) {
      const choice = this.#memory.placement.choose(trial.id, open);
      if (!choice) return null;
      const { to: row, leaves } = choice;
      // Before anything is awaited: calls that come together would all find the same replica idle.
      const leave = this.#memory.inFlight.enter(row.url);
      const lease = await this.#verify(row, trial.runId);
      // Its label may have taken a while: it must still be in rotation.
      if (lease && (await this.#readRows()).some(({ url, inRotation, runId }) => url === row.url && inRotation && runId === row.runId)) {
        if (leaves) this.#memory.placement.escape(trial.id, leaves, row);
        return { ...lease, leave };
      }
      leave();
      open = open.filter((other) => other !== row);
    }
  }

  /** Null, with a line in the log, when it is away or has not its pool's label. */
  async #verify(row: ReplicaRow, runId: string | null): Promise<Omit<Lease, 'leave'> | null> {
    const replica = this.#replica(row.url);
    try {
      const { label, model } = await this.#freshPolicy(replica, runId === null ? null : row.label);
      if (runId === null || (label !== null && label === row.label)) {
        this.#memory.complaints.delete(row.url);
        void replica.logprobsMode(model);
        return { replica, label, changes: replica.changes, model };
      }
      this.#complain(row.url, `engine ${row.url} says ${label ?? 'no label'}, its pool ${row.label ?? 'has none yet'}: left out`);
    } catch (error) {
      this.#complain(row.url, `engine ${row.url} cannot be reached: ${error instanceof Error ? error.message : String(error)}`);
      replica.cool();
    }
    return null;
  }

  /** A publication changes the label without changing a connection: one that is not as expected is read again. */
  async #freshPolicy(replica: Replica, expected: string | null): Promise<Pick<Lease, 'label' | 'model'>> {
    const policy = await policyOf(replica, expected);
    if (expected === null || policy.label === expected) return policy;
    replica.forget();
    return policyOf(replica, expected);
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

/** The gateway cannot learn that an engine outside of any run has new weights. The versions in the engine's replies take precedence over this label. */
const LABEL_MS = 1_000;

/** The model to ask a replica for, and its label: the base's, or where an adapter has the expected name, that. */
async function policyOf(replica: Replica, expected: string | null): Promise<Pick<Lease, 'label' | 'model'>> {
  const [label, models] = await Promise.all([replica.label(expected === null ? LABEL_MS : undefined), replica.models()]);
  const adapter = models.find(({ id }) => id === expected);
  return adapter ? { label: adapter.id, model: adapter.id } : { label, model: models[0]?.id ?? null };
}
