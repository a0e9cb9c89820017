import type { Log } from '../../core/log.ts';
import { DEPLOYMENT_POOL, type replicas } from '../../store/schema.ts';
import { isRelayed, RELAY } from '../../core/engine-url.ts';
import { Failure } from '../failure.ts';
import { affinityHeaders } from './affinity.ts';
import { InFlight } from './in-flight.ts';
import { KvRoom } from './kv-room.ts';
import { RecentMap } from '../../core/recent-map.ts';
import { sleep } from '../../core/sleep.ts';
import { raceAbort } from '../../core/race-abort.ts';
import type { EngineConnection } from './connection.ts';
import { isAdapter, type Lease } from './lease.ts';
import type { EngineLoad } from './load.ts';
import { Placement, type Need } from './placement.ts';
import { Replica, ReplicaMemory } from './replica.ts';
import { WaitingLine } from './waiting-line.ts';

export type ReplicaRow = typeof replicas.$inferSelect;

type Caller = { id: string; runId: string | null };
/** `tokens` is how many tokens the call will have in the KV cache. It is null for a question, which never waits for room. */
type Asked = { except?: ReadonlySet<string>; tokens?: number | null };

/** A replica as one process knows it. `complaint` says why its last call did not take it, and is null when it would. */
export type ReplicaLoad = {
  engine: string;
  inFlight: number;
  escapes: number;
  reported: EngineLoad | null;
  /** In ms since the epoch. */
  reportedAt: number;
  complaint: string | null;
};

type PoolOptions = {
  readRows: () => Promise<ReplicaRow[]>;
  connect: (url: string) => EngineConnection;
  /** The memory of earlier pools of this process on the same replicas. */
  memory?: PoolMemory;
  /** The deployment's own engines, which serve trials outside any run. */
  urls: readonly string[];
  /** The most that a call waits for room in the KV cache. With 0, no call waits. */
  kvWaitMs: number;
  /** The secret that makes headers which name a call's trial to a router. With null, calls get no such headers. */
  affinitySecret: string | null;
  log: Log;
};

/**
 * Rows of replicas are reused for this time. A stale row may send a call to a replica whose weights change; this time is shorter than any
 * publication, and `verifyLease` then sees the change.
 */
const ROWS_MS = 200;
const POLL_MS = 100;
/** A report of an engine's calls is ignored at this age. */
const OTHERS_MS = 5_000;
/** The largest number of trials whose headers are remembered: at least the half of it that called last. */
const REMEMBERED_TRIALS = 10_000;

/** The known state of the replicas and their load. It holds only values, so that requests with connections of their own can share it. */
export class PoolMemory {
  readonly #now: () => number;
  readonly inFlight = new InFlight();
  readonly rooms = new Map<string, KvRoom>();
  /** The calls of other gateways at a replica when it reported its load. */
  readonly others = new Map<string, { at: number; calls: number }>();
  readonly placement = new Placement({
    load: (url) => this.inFlight.count(url) + this.#othersAt(url),
    room: (url) => this.room(url),
  });
  /** The calls that wait for room, by their run. */
  readonly lines = new Map<string, WaitingLine>();
  /** The headers of the trials that called last. */
  readonly affinity = new RecentMap<string, Lease['headers']>(REMEMBERED_TRIALS);
  readonly waits = { waited: 0, refused: 0 };
  readonly complaints = new Map<string, string>();
  readonly replicas = new Map<string, ReplicaMemory>();

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  room(url: string): KvRoom {
    const known = this.rooms.get(url) ?? new KvRoom(this.#now);
    this.rooms.set(url, known);
    return known;
  }

  /** Notes the load that an engine reported. `isLimited` is true when calls wait for room. */
  noteLoad(url: string, { running, waiting, kvUse, kvTokens }: EngineLoad, isLimited: boolean): void {
    this.others.set(url, { at: this.#now(), calls: Math.max(running + waiting - this.inFlight.count(url), 0) });
    if (isLimited && kvUse !== null && kvTokens !== null) this.room(url).report(kvTokens, kvUse * kvTokens);
  }

  #othersAt(url: string): number {
    const known = this.others.get(url);
    return known && this.#now() - known.at < OTHERS_MS ? known.calls : 0;
  }

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
   * may be tried again. While no replica has room in its KV cache, it waits for that beforehand, and at most `kvWaitMs`; then it throws a 429.
   */
  async lease(
    trial: Caller,
    deadline: number,
    signal: AbortSignal,
    { except = new Set(), tokens = null }: Asked = {},
  ): Promise<Lease> {
    const holdMs = deadline - Date.now();
    let until = deadline;
    for (;;) {
      const behind = (this.#memory.lines.get(trial.runId ?? '')?.length ?? 0) > 0;
      let lease = await raceAbort(this.#find(trial, except, signal, { tokens, behind, contended: behind }), signal);
      if (lease === 'full') {
        lease = await this.#waitForRoom(trial, except, signal, tokens);
        until = Date.now() + holdMs;
      }
      if (lease) return lease;
      if (Date.now() + POLL_MS > until) {
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

  /** Returns null when the run has no replica any more. */
  async #waitForRoom(
    trial: Caller,
    except: ReadonlySet<string>,
    signal: AbortSignal,
    tokens: number | null,
  ): Promise<Lease | null> {
    const { lines, waits } = this.#memory;
    const key = trial.runId ?? '';
    const line = lines.get(key) ?? new WaitingLine();
    lines.set(key, line);
    const until = Date.now() + this.#options.kvWaitMs;
    waits.waited += 1;
    try {
      const look = async (contended: boolean) => {
        const found = await this.#find(trial, except, signal, { tokens, contended, behind: false });
        return found === 'full' ? null : { lease: found };
      };
      const found = line.isFull ? null : await line.wait(trial.id, look, { signal, until });
      if (found) return found.lease;
    } finally {
      if (line.length === 0) lines.delete(key);
    }
    waits.refused += 1;
    const why = line.isFull ? 'too many calls wait for it' : 'none came free in time';
    throw new Failure(429, 'engine_full', `the engines have no room in their KV caches, and ${why}: try again`, {
      headers: { 'retry-after': '10' },
    });
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
    const row = rows.find((each) => each.url === url);
    // One that left the pool during the call got no other weights from it.
    const expected = row ? row.weightVersion : weightVersion;
    if (expected !== weightVersion) return now === expected || now === weightVersion ? 'published' : 'foreign';
    return now === weightVersion && replica.changes === changes ? 'same' : 'foreign';
  }

  async close(): Promise<void> {
    await Promise.all([...this.#replicas.values()].map((replica) => replica.connection.close()));
  }

  /** Returns calls in flight and escapes from load, by replica, as this process saw them, and what the replica reported last. */
  get loads(): ReplicaLoad[] {
    const { replicas, inFlight, placement, complaints } = this.#memory;
    return [...replicas].map(([engine, { load, loadAt }]) => ({
      engine,
      inFlight: inFlight.count(engine),
      escapes: placement.escapes(engine),
      reported: load,
      reportedAt: loadAt,
      complaint: complaints.get(engine) ?? null,
    }));
  }

  /** Returns how many calls wait for room in a KV cache, how many have waited, and how many of them in vain. */
  get roomWaits(): { waiting: number; waited: number; refused: number } {
    const { lines, waits } = this.#memory;
    return { waiting: [...lines.values()].reduce((sum, { length }) => sum + length, 0), ...waits };
  }

  async #find(
    trial: Caller,
    except: ReadonlySet<string>,
    signal: AbortSignal,
    need: Need,
  ): Promise<Lease | 'full' | null> {
    const { urls } = this.#options;
    const { placement, inFlight } = this.#memory;
    const reading = this.#readRows();
    let open = (await reading).filter(
      (row) =>
        row.inRotation &&
        (trial.runId === null ? isOfDeployment(row, urls) : row.runId === trial.runId) &&
        !except.has(row.url) &&
        !this.#replica(row.url).isUnavailable,
    );
    if (need.tokens !== null) for (const { url } of open) this.#renewLoad(url);
    for (;;) {
      const choice = placement.choose(trial.id, open, need);
      if (!choice || signal.aborted) return null;
      if (choice === 'full') return choice;
      const { to: row } = choice;
      // Counted before anything is awaited, because calls that come together would all find the same replica idle.
      const leave = inFlight.enter(row.url);
      const giveRoom = need.tokens ? this.#memory.room(row.url).enter(trial.id, need.tokens) : null;
      const release = (tokens?: number) => {
        leave();
        giveRoom?.(tokens);
        this.#memory.lines.get(trial.runId ?? '')?.wake();
      };
      const drop = () => release();
      // The place is released at once and not after the wait, because a Worker may end a request at any moment once its agent has left.
      signal.addEventListener('abort', drop, { once: true });
      try {
        const lease = await this.#verify(row, trial.runId);
        // Reading its weight version may have taken a while, so it must still be in rotation. The same reading of the rows says so already.
        if (lease && (this.#readRows() === reading || (await this.#isInRotation(row)))) {
          if (need.tokens !== null) placement.settle(trial.id, choice);
          return { ...lease, release, headers: this.#affinity(trial.id) };
        }
      } catch (error) {
        release();
        throw error;
      } finally {
        signal.removeEventListener('abort', drop);
      }
      release();
      open = open.filter((other) => other !== row);
    }
  }

  #renewLoad(url: string): void {
    this.#replica(url).renewLoad((load) => this.#memory.noteLoad(url, load, this.#options.kvWaitMs > 0));
  }

  /** Returns the headers of a trial's calls. They depend on the trial alone, so not every call computes them. */
  #affinity(trialId: string): Lease['headers'] {
    const { affinitySecret } = this.#options;
    if (affinitySecret === null) return {};
    const { affinity } = this.#memory;
    const known = affinity.get(trialId);
    if (known) return known;
    const headers = affinityHeaders(affinitySecret, trialId);
    affinity.set(trialId, headers);
    return headers;
  }

  async #isInRotation(row: ReplicaRow): Promise<boolean> {
    const rows = await this.#readRows();
    return rows.some(({ url, inRotation, runId }) => url === row.url && inRotation && runId === row.runId);
  }

  /** Returns null and logs a line when the replica is away or lacks its pool's weight version. */
  async #verify(row: ReplicaRow, runId: string | null): Promise<Omit<Lease, 'release' | 'headers'> | null> {
    const replica = this.#replica(row.url);
    try {
      const { weightVersion, model } = await this.#freshPolicy(replica, runId === null ? null : row.weightVersion);
      // Nothing can be published to engines of some kinds, nor trained there, so an evaluation takes what they serve.
      const isKnown = weightVersion !== null || replica.engine.whyUntrainable !== null;
      if (runId === null || (isKnown && weightVersion === row.weightVersion)) {
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
    const own = (await this.#readRows()).filter(
      ({ runId: owner, draining, drainedByHand }) => owner === runId && !draining && !drainedByHand,
    );
    return runId !== null && own.length > 0 && own.every((row) => !row.inRotation);
  }

  #readRows(): Promise<ReplicaRow[]> {
    if (!this.#rows || Date.now() - this.#rows.at > ROWS_MS) {
      const read = { at: Date.now(), rows: this.#options.readRows() };
      read.rows.then(
        (rows) => this.#forgetLeft(rows),
        () => {
          if (this.#rows === read) this.#rows = null;
        },
      );
      this.#rows = read;
    }
    return this.#rows.rows;
  }

  /** Forgets the replicas that left, once their calls have ended. */
  #forgetLeft(rows: readonly ReplicaRow[]): void {
    const { replicas, complaints, inFlight, placement, rooms, others } = this.#memory;
    for (const url of replicas.keys()) {
      if (inFlight.count(url) > 0 || rows.some((row) => row.url === url)) continue;
      replicas.delete(url);
      complaints.delete(url);
      placement.forget(url);
      rooms.delete(url);
      others.delete(url);
      void this.#replicas.get(url)?.connection.close();
      this.#replicas.delete(url);
    }
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
    this.#options.log(line, { level: 'warning' });
  }
}

/** True for an engine of the deployment. Of those that a list names, it is in this gateway's own list. `relay` names all that relay workers bring. */
const isOfDeployment = ({ url, pool, foundBy }: ReplicaRow, urls: readonly string[]): boolean =>
  urls.includes(url) || (pool === DEPLOYMENT_POOL && (foundBy !== 'list' || (isRelayed(url) && urls.includes(RELAY))));

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
