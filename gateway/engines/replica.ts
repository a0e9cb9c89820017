import { z } from 'zod';
import { weightVersionIn, WEIGHT_INFO } from '../../core/weight-info.ts';
import { readTraits, type EngineTraits } from '../token-in/engine-traits.ts';
import { readText, type EngineConnection } from './connection.ts';
import { readTakes, type Feature } from './adapt-messages.ts';
import { readLogprobsMode, type LogprobsMode } from './logprobs-mode.ts';

const modelList = z.object({ data: z.array(z.looseObject({ id: z.string() })) });
export type Model = z.output<typeof modelList>['data'][number];

/** A loaded engine may take long even for a small question. It is slow then, not away. */
const ASK_MS = 30_000;
/** How long an engine's first requests may take while its kernels warm up. */
const WARM_MS = 60_000;
/** How long the server may take to answer the health check, and how often a scheduler that does not answer is asked. */
const ALIVE_MS = 5_000;
const PATIENCE = 3;
const BACK_OFF_MS = 500;

/** The reports of a replica. It holds only values, so that requests with connections of their own can share it. */
export class ReplicaMemory {
  /** Counts the times that the engine reported another weight version than before. */
  changes = 0;
  lastWeightVersion: string | null | undefined;
  models: Model[] | null = null;
  /** The model that the engine listed last: vLLM's `root` is the one that it was started with. */
  lastModel: string | undefined;
  traits: { known: EngineTraits | null } | null = null;
  /** The traits that this process, or the one before it at this address, reported last. */
  lastTraits: EngineTraits | null = null;
  mode: { known: LogprobsMode | null } | null = null;
  unavailableUntil = 0;
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
  readonly #askMs: number;
  #verified: { weightVersion: string | null; epoch: number; at: number } | null = null;
  #reading: Reading | null = null;
  /** The reading that was started before the known weight version became too old. */
  #renewing: Reading | null = null;
  #models: Promise<Model[]> | null = null;
  #traits: Promise<EngineTraits | null> | null = null;
  #traitsFailedUntil = 0;
  readonly #takes = new Map<Feature, Promise<boolean>>();
  #mode: Promise<LogprobsMode | null> | null = null;

  constructor(connection: EngineConnection, memory = new ReplicaMemory(), askMs = ASK_MS) {
    this.connection = connection;
    this.#askMs = askMs;
    this.#memory = memory;
    // A new connection may lead to a process that has just started. It is asked at once, so that a later reading does not hide what answered
    // in between.
    connection.onChange = () => {
      this.#models = memory.models = null;
      this.weightVersion().catch(() => {});
    };
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
    const models = this.#ask('/v1/models').then((reply) => modelList.safeParse(reply).data?.data ?? []);
    this.#models = models;
    const keep = (list: Model[]) => {
      if (this.#models !== models) return;
      if (list.length === 0) {
        this.#models = null;
        return;
      }
      this.#memory.models = list;
      const root = list[0]?.['root'];
      // An engine that was started again with another model has the weight version of every engine that just started.
      if (this.#memory.lastModel !== undefined && this.#memory.lastModel !== String(root)) {
        this.#forgetTraits();
        this.#memory.lastTraits = null;
      }
      this.#memory.lastModel = String(root);
    };
    models.then(keep, () => keep([]));
    return models;
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
    const traits = readTraits(this.connection, model, AbortSignal.timeout(WARM_MS)).then(
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

  /** Returns whether the engine's model and chat template accept such messages; true when it cannot be asked, because a call then shows it. */
  takes(feature: Feature, model: string | null): Promise<boolean> {
    const known = this.#takes.get(feature);
    if (known) return known;
    const takes = readTakes(feature, this.connection, model, AbortSignal.timeout(ASK_MS)).catch(() => {
      this.#takes.delete(feature);
      return true;
    });
    this.#takes.set(feature, takes);
    return takes;
  }

  /** Returns null when the engine does not say. */
  logprobsMode(model: string | null): Promise<LogprobsMode | null> {
    if (this.#mode) return this.#mode;
    const { mode: remembered } = this.#memory;
    if (remembered) return Promise.resolve(remembered.known);
    const mode = readLogprobsMode(this.connection, model, AbortSignal.timeout(WARM_MS)).then(
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

  /** Returns whether it answers at all within `ms`. */
  async isAlive(ms = ALIVE_MS): Promise<boolean> {
    const asked = this.connection.ask({
      method: 'GET',
      path: '/health',
      signal: AbortSignal.timeout(Math.min(ms, ASK_MS)),
    });
    const read = asked.then(async ({ status, body }) => readText(body).then(() => status < 500));
    return read.catch(() => false);
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
    this.#takes.clear();
    this.#mode = null;
    this.#memory.forget();
  }

  #forgetTraits(): void {
    this.#traits = this.#memory.traits = null;
    this.#takes.clear();
    this.#mode = this.#memory.mode = null;
  }

  get isUnavailable(): boolean {
    return Date.now() < this.#memory.unavailableUntil;
  }

  async #readWeightVersion(epoch: number): Promise<string | null> {
    const weightVersion = weightVersionIn(await this.#askPatiently(WEIGHT_INFO));
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

  /**
   * Asks again while the engine is healthy. vLLM's scheduler answers between two steps, which take long on a busy CPU, and its server's
   * health route answers meanwhile.
   */
  async #askPatiently(path: string): Promise<unknown> {
    for (let asks = 1; ; asks++) {
      try {
        return await this.#ask(path);
      } catch (error) {
        const isBusy = error instanceof Error && error.name === 'TimeoutError' && (await this.isAlive());
        if (!isBusy) throw error;
        if (asks === PATIENCE) throw new EngineBusy(error.message, { cause: error });
      }
    }
  }

  /** Returns the JSON of a reply with status 200, else null. */
  async #ask(path: string): Promise<unknown> {
    const reply = await this.connection.ask({ method: 'GET', path, signal: AbortSignal.timeout(this.#askMs) });
    const text = await readText(reply.body);
    if (reply.status >= 500) throw new Error(`${this.connection.url}${path} answered ${reply.status}`);
    try {
      return reply.status === 200 ? JSON.parse(text) : null;
    } catch {
      return null;
    }
  }
}
