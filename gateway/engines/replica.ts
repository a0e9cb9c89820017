import { engineIn, UNNAMED } from './all.ts';
import type { EngineConnection } from './connection.ts';
import type { Engine, EngineTraits, LogprobsMode, Model } from './engine.ts';
import type { EngineLoad } from './load.ts';

/** A loaded engine may take long even for a small question. It is slow then, not away. */
const ASK_MS = 30_000;
/** How long an engine's first requests may take while its kernels warm up. */
const WARM_MS = 60_000;
/** How long the server may take to answer the health check, and how often a scheduler that does not answer is asked. */
const ALIVE_MS = 5_000;
const PATIENCE = 3;
const BACK_OFF_MS = 500;
/** An engine is asked for its load again after this time. */
const LOAD_MS = 1_000;
/** An engine that did not tell its load is asked again after this time. */
const NO_LOAD_MS = 30_000;
/** A load that takes longer to come counts as not told. */
const LOAD_ASK_MS = 5_000;

/** The reports of a replica. It holds only values, so that requests with connections of their own can share it. */
export class ReplicaMemory {
  /** The kind of engine that answered last. Null: none of those that are known has answered. */
  engine: Engine | null = null;
  /** Counts the times that the engine reported another weight version than before. */
  changes = 0;
  lastWeightVersion: string | null | undefined;
  models: Model[] | null = null;
  /** The model that the engine was started with when it was asked last. */
  lastRoot: string | undefined;
  traits: { known: EngineTraits | null } | null = null;
  /** The traits that this process, or the one before it at this address, reported last. */
  lastTraits: EngineTraits | null = null;
  mode: { known: LogprobsMode | null } | null = null;
  unavailableUntil = 0;
  /** The load that the engine told last. It is null when it did not tell. */
  load: EngineLoad | null = null;
  /** The time at which it told that, in ms since the epoch. */
  loadAt = 0;
  askLoadAt = 0;
  /** The time at which it last completed a call, in ms since the epoch. */
  answeredAt = 0;

  forget(): void {
    this.models = null;
    this.traits = null;
    this.mode = null;
  }
}

type Reading = { epoch: number; weightVersion: Promise<string | null> };

/** The engine's server answers and its scheduler does not. */
class EngineBusy extends Error {}

/** One replica as the gateway sees it: the weight version that it reports, and whether that can still be trusted. */
export class Replica {
  readonly connection: EngineConnection;
  readonly #memory: ReplicaMemory;
  readonly #named: Engine | null;
  readonly #askMs: number;
  #verified: { weightVersion: string | null; epoch: number; at: number } | null = null;
  #reading: Reading | null = null;
  /** The reading that was started before the known weight version became too old. */
  #renewing: Reading | null = null;
  #models: Promise<Model[]> | null = null;
  #traits: Promise<EngineTraits | null> | null = null;
  #traitsFailedUntil = 0;
  readonly #answers = new Map<string, Promise<boolean>>();
  #mode: Promise<LogprobsMode | null> | null = null;

  constructor(connection: EngineConnection, memory = new ReplicaMemory(), askMs = ASK_MS) {
    this.connection = connection;
    this.#named = engineIn(connection.url);
    this.#askMs = askMs;
    this.#memory = memory;
    // A new connection may lead to a process that has just started. It is asked at once, so that a later reading does not hide what answered
    // in between.
    connection.onChange = () => {
      this.#models = memory.models = null;
      this.weightVersion().catch(() => {});
    };
  }

  /** The kind of engine. If the URL does not name it, it is known once the weight version was read. */
  get engine(): Engine {
    return this.#named ?? this.#memory.engine ?? UNNAMED[0];
  }

  async #knownEngine(): Promise<Engine> {
    if (!this.#named && !this.#memory.engine) await this.weightVersion();
    return this.engine;
  }

  get changes(): number {
    return this.#memory.changes;
  }

  /**
   * Returns the engine's weight version, read after the last lost or new connection and at most `maxAgeMs` ago. While calls come without a pause it
   * is read again in advance, and no call waits for that. Returns null when the engine has no such route. Rejects when the engine does not
   * respond.
   */
  async weightVersion(maxAgeMs = Infinity): Promise<string | null> {
    const { epoch } = this.connection;
    const known = this.#verified && this.#verified.epoch >= epoch ? this.#verified : null;
    const age = known ? Date.now() - known.at : Infinity;
    if (known && age <= maxAgeMs) {
      if (age > maxAgeMs / 2 && !this.#reading) this.#renewing = this.#read();
      return known.weightVersion;
    }
    if (known && this.#reading && this.#reading === this.#renewing) return known.weightVersion;
    // Connections that are made together share the reading after the one under way.
    if (this.#reading && this.#reading.epoch < epoch) await this.#reading.weightVersion.catch(() => {});
    if (this.#verified && this.#verified !== known && this.#verified.epoch >= epoch)
      return this.#verified.weightVersion;
    const { weightVersion } = this.#reading && this.#reading.epoch >= epoch ? this.#reading : this.#read();
    if (!known) return weightVersion;
    // A busy engine keeps its weight version. Only a run depends on the newest one, and a run asks without a limit of age.
    return weightVersion.catch((error: unknown) => {
      if (error instanceof EngineBusy) return known.weightVersion;
      throw error;
    });
  }

  #read(): Reading {
    const { epoch } = this.connection;
    const reading = { epoch, weightVersion: this.#readWeightVersion(epoch) };
    this.#reading = reading;
    const forget = () => {
      if (this.#reading === reading) this.#reading = null;
    };
    reading.weightVersion.then(forget, forget);
    return reading;
  }

  models(): Promise<Model[]> {
    if (this.#models) return this.#models;
    const { models: remembered } = this.#memory;
    if (remembered) return Promise.resolve(remembered);
    const models = this.#knownEngine().then((engine) =>
      engine.models(this.connection, AbortSignal.timeout(this.#askMs)),
    );
    this.#models = models;
    const keep = (list: Model[]) => {
      if (this.#models !== models) return;
      if (list.length === 0) {
        this.#models = null;
        return;
      }
      this.#memory.models = list;
      const root = list[0]?.root;
      // An engine that was started again with another model has the weight version of every engine that just started.
      if (this.#memory.lastRoot !== undefined && this.#memory.lastRoot !== root) {
        this.#forgetTraits();
        this.#memory.lastTraits = null;
      }
      this.#memory.lastRoot = root;
    };
    models.then(keep, () => keep([]));
    return models;
  }

  /** The traits that `traits` returns without asking the engine. It is null when the engine must be asked. */
  get knownTraits(): { known: EngineTraits | null } | null {
    return this.#memory.traits;
  }

  /**
   * Returns what token-in must know about the engine, or null when it lacks the routes. If it failed to answer a moment ago, returns its
   * last traits, so that not every call asks an engine in difficulty. Rejects when it fails to answer and was never known.
   */
  traits(model: string | null): Promise<EngineTraits | null> {
    if (this.#traits) return this.#traits;
    const { traits: remembered } = this.#memory;
    if (remembered) return Promise.resolve(remembered.known);
    if (Date.now() < this.#traitsFailedUntil) return Promise.resolve(this.#memory.lastTraits);
    const reading = this.#knownEngine().then((engine) =>
      engine.traits(this.connection, model, AbortSignal.timeout(WARM_MS)),
    );
    const traits = reading.then(
      (known) => {
        if (this.#traits === traits) Object.assign(this.#memory, { traits: { known }, lastTraits: known });
        return known;
      },
      (error: unknown) => {
        if (this.#traits === traits) {
          this.#traits = null;
          this.#traitsFailedUntil = Date.now() + BACK_OFF_MS;
        }
        if (this.#memory.lastTraits) return this.#memory.lastTraits;
        throw error;
      },
    );
    this.#traits = traits;
    return traits;
  }

  /** Answers a question about the engine's model, which is asked once; true when it cannot be asked, because a call then shows it. */
  answer(question: string, ask: (signal: AbortSignal) => Promise<boolean>): Promise<boolean> {
    const known = this.#answers.get(question);
    if (known) return known;
    const answer = ask(AbortSignal.timeout(ASK_MS)).catch(() => {
      this.#answers.delete(question);
      return true;
    });
    this.#answers.set(question, answer);
    return answer;
  }

  /** Returns null when the engine does not say. */
  logprobsMode(model: string | null): Promise<LogprobsMode | null> {
    if (this.#mode) return this.#mode;
    const { mode: remembered } = this.#memory;
    if (remembered) return Promise.resolve(remembered.known);
    const reading = this.#knownEngine().then((engine) =>
      engine.logprobsMode(this.connection, model, AbortSignal.timeout(WARM_MS)),
    );
    const mode = reading.then(
      (known) => {
        if (this.#mode === mode) this.#memory.mode = { known };
        return known;
      },
      () => {
        if (this.#mode === mode) this.#mode = null;
        return null;
      },
    );
    this.#mode = mode;
    return mode;
  }

  /** Asks for the engine's load unless that was done a moment ago. Nothing waits for the answer. */
  renewLoad(onLoad: (load: EngineLoad) => void): void {
    if (Date.now() >= this.#memory.askLoadAt) void this.#askLoad(onLoad);
  }

  async #askLoad(onLoad: (load: EngineLoad) => void): Promise<void> {
    const memory = this.#memory;
    memory.askLoadAt = Date.now() + LOAD_ASK_MS;
    const load = await this.engine.load(this.connection, AbortSignal.timeout(LOAD_ASK_MS)).catch(() => null);
    memory.askLoadAt = Date.now() + (load ? LOAD_MS : NO_LOAD_MS);
    memory.load = load;
    memory.loadAt = Date.now();
    if (load) onLoad(load);
  }

  /** Returns whether it answers at all within `ms`. */
  async isAlive(ms = ALIVE_MS): Promise<boolean> {
    return this.engine.isAlive(this.connection, AbortSignal.timeout(Math.min(ms, ASK_MS))).catch(() => false);
  }

  get answeredAt(): number {
    return this.#memory.answeredAt;
  }

  noteAnswer(): void {
    this.#memory.answeredAt = Date.now();
  }

  /** Notes that it could not be reached: for a moment other replicas go first, and what was known of it is read again. */
  markUnavailable(): void {
    this.#memory.unavailableUntil = Date.now() + BACK_OFF_MS;
    this.forget();
  }

  forget(): void {
    this.#verified = null;
    this.#models = null;
    this.#traits = null;
    this.#answers.clear();
    this.#mode = null;
    this.#memory.forget();
  }

  #forgetTraits(): void {
    this.#traits = this.#memory.traits = null;
    this.#answers.clear();
    this.#mode = this.#memory.mode = null;
  }

  get isUnavailable(): boolean {
    return Date.now() < this.#memory.unavailableUntil;
  }

  async #readWeightVersion(epoch: number): Promise<string | null> {
    const weightVersion = await this.#askPatiently();
    const memory = this.#memory;
    if (memory.lastWeightVersion !== undefined && memory.lastWeightVersion !== weightVersion) {
      memory.changes += 1;
      // Another process may answer now, started with other options.
      this.#forgetTraits();
    }
    memory.lastWeightVersion = weightVersion;
    if (!this.#verified || this.#verified.epoch <= epoch) this.#verified = { weightVersion, epoch, at: Date.now() };
    return weightVersion;
  }

  /** Asks again while the engine is healthy: its scheduler may answer only between two steps, which take long on a busy CPU. */
  async #askPatiently(): Promise<string | null> {
    for (let asks = 1; ; asks++) {
      try {
        return await this.#askWeightVersion();
      } catch (error) {
        const isBusy = error instanceof Error && error.name === 'TimeoutError' && (await this.isAlive());
        if (!isBusy) throw error;
        if (asks === PATIENCE) throw new EngineBusy(error.message, { cause: error });
      }
    }
  }

  /** Another process, of another kind, may answer now. */
  async #askWeightVersion(): Promise<string | null> {
    const known = this.engine;
    for (const engine of this.#named ? [known] : [known, ...UNNAMED.filter((each) => each !== known)]) {
      const weightVersion = await engine.weightVersion(this.connection, AbortSignal.timeout(this.#askMs));
      if (weightVersion === null) continue;
      this.#memory.engine = engine;
      return weightVersion;
    }
    return null;
  }
}
