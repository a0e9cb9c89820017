import { z } from 'zod';
import { readTraits, type EngineTraits } from '../token-in/engine-traits.ts';
import { readText, type EngineConnection } from './connection.ts';
import { readTakes, type Feature } from './adapt-messages.ts';
import { readLogprobsMode, type LogprobsMode } from './logprobs-mode.ts';

/** A label with half a character could not be written into a URL's or a request's text. */
const weightInfo = z.object({ weight_version: z.string().transform((label) => label.toWellFormed()) });
const modelList = z.object({ data: z.array(z.looseObject({ id: z.string() })) });
export type Model = z.output<typeof modelList>['data'][number];

/** An engine under load takes its time also for a small question: it is slow then, not away. */
const ASK_MS = 30_000;
/** For what an engine's first requests take, while its kernels warm up. */
const WARM_MS = 60_000;
/** How long its server may take to say that it lives, and how often a scheduler that does not answer in time is asked. */
const ALIVE_MS = 5_000;
const PATIENCE = 3;
const COOL_MS = 500;

/** What a replica has said. Values alone: where each request has its own connections they may still share this. */
export class ReplicaMemory {
  /** Counts the times that it was found with another label than before. */
  changes = 0;
  lastLabel: string | null | undefined;
  models: Model[] | null = null;
  traits: { known: EngineTraits | null } | null = null;
  /** The traits that this process, or the one before it, gave last. */
  lastTraits: EngineTraits | null = null;
  mode: { known: LogprobsMode | null } | null = null;
  coolUntil = 0;
  /** When it last completed a call, in milliseconds since the epoch. */
  answeredAt = 0;

  forget(): void {
    this.models = null;
    this.traits = null;
    this.mode = null;
  }
}

type Reading = { epoch: number; label: Promise<string | null> };

/** The engine's server answers, but its scheduler does not. */
class EngineBusy extends Error {}

/** One replica as the gateway sees it: which label it says, and whether that can still be believed. */
export class Replica {
  readonly connection: EngineConnection;
  readonly #memory: ReplicaMemory;
  readonly #askMs: number;
  #verified: { label: string | null; epoch: number; at: number } | null = null;
  #reading: Reading | null = null;
  /** The reading that began before the known label was too old. */
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
    // A new connection may lead to a process that has just started: it is asked at once, so that a relabelling which follows
    // does not hide what answered in between.
    connection.onChange = () => {
      this.#models = memory.models = null;
      this.label().catch(() => {});
    };
  }

  get changes(): number {
    return this.#memory.changes;
  }

  /**
   * Returns the engine's label. The label was read after the last lost or new connection, and at most `maxAgeMs` ago; while calls come without
   * a pause it is read again before that, and no call waits for it. Null when the engine has no such route. Rejects when the engine does not
   * respond.
   */
  async label(maxAgeMs = Infinity): Promise<string | null> {
    const { epoch } = this.connection;
    const known = this.#verified && this.#verified.epoch >= epoch ? this.#verified : null;
    const age = known ? Date.now() - known.at : Infinity;
    if (known && age <= maxAgeMs) {
      if (age > maxAgeMs / 2 && !this.#reading) this.#renewing = this.#read();
      return known.label;
    }
    if (known && this.#reading && this.#reading === this.#renewing) return known.label;
    // Connections that are made together share the reading that follows the one under way.
    if (this.#reading && this.#reading.epoch < epoch) await this.#reading.label.catch(() => {});
    if (this.#verified && this.#verified !== known && this.#verified.epoch >= epoch) return this.#verified.label;
    const { label } = this.#reading && this.#reading.epoch >= epoch ? this.#reading : this.#read();
    if (!known) return label;
    // A busy engine keeps its label. Only a run depends on the newest one, and it asks without a limit of age.
    return label.catch((error: unknown) => {
      if (error instanceof EngineBusy) return known.label;
      throw error;
    });
  }

  #read(): Reading {
    const { epoch } = this.connection;
    const reading = { epoch, label: this.#readLabel(epoch) };
    this.#reading = reading;
    const forget = () => {
      if (this.#reading === reading) this.#reading = null;
    };
    reading.label.then(forget, forget);
    return reading;
  }

  models(): Promise<Model[]> {
    if (this.#models) return this.#models;
    const { models: told } = this.#memory;
    if (told) return Promise.resolve(told);
    const models = this.#ask('/v1/models').then((reply) => modelList.safeParse(reply).data?.data ?? []);
    this.#models = models;
    const keep = (list: Model[]) => {
      if (this.#models !== models) return;
      if (list.length > 0) this.#memory.models = list;
      else this.#models = null;
    };
    models.then(keep, () => keep([]));
    return models;
  }

  /**
   * Returns what token-in needs to know of the engine; null when the engine lacks the routes. When it failed to answer a moment ago, returns
   * what it said before, so that not each call asks an engine in difficulty again. Rejects when it fails to answer now and was never known.
   */
  traits(model: string | null): Promise<EngineTraits | null> {
    if (this.#traits) return this.#traits;
    const { traits: told } = this.#memory;
    if (told) return Promise.resolve(told.known);
    if (Date.now() < this.#traitsFailedUntil) return Promise.resolve(this.#memory.lastTraits);
    const traits = readTraits(this.connection, model, AbortSignal.timeout(WARM_MS)).then(
      (known) => {
        if (this.#traits === traits) Object.assign(this.#memory, { traits: { known }, lastTraits: known });
        return known;
      },
      (error: unknown) => {
        if (this.#traits === traits) {
          this.#traits = null;
          this.#traitsFailedUntil = Date.now() + COOL_MS;
        }
        if (this.#memory.lastTraits) return this.#memory.lastTraits;
        throw error;
      },
    );
    this.#traits = traits;
    return traits;
  }

  /** Returns whether the engine's model and chat template accept such messages. Returns true when it cannot be asked; a call then shows the answer. */
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

  /** Null when it does not say. */
  logprobsMode(model: string | null): Promise<LogprobsMode | null> {
    if (this.#mode) return this.#mode;
    const { mode: told } = this.#memory;
    if (told) return Promise.resolve(told.known);
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

  /** Whether it answers at all within `ms`. */
  async isAlive(ms = ALIVE_MS): Promise<boolean> {
    const asked = this.connection.ask({ method: 'GET', path: '/health', signal: AbortSignal.timeout(Math.min(ms, ASK_MS)) });
    const read = asked.then(async ({ status, body }) => readText(body).then(() => status < 500));
    return read.catch(() => false);
  }

  get answeredAt(): number {
    return this.#memory.answeredAt;
  }

  noteAnswer(): void {
    this.#memory.answeredAt = Date.now();
  }

  /** It could not be reached: others go first for a moment, and what was known of it is asked again. */
  cool(): void {
    this.#memory.coolUntil = Date.now() + COOL_MS;
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

  get isCool(): boolean {
    return Date.now() < this.#memory.coolUntil;
  }

  async #readLabel(epoch: number): Promise<string | null> {
    const reply = weightInfo.safeParse(await this.#askPatiently('/weight_info'));
    const label = reply.success ? reply.data.weight_version : null;
    const memory = this.#memory;
    if (memory.lastLabel !== undefined && memory.lastLabel !== label) {
      memory.changes += 1;
      // It may be another process, started in another way.
      this.#traits = memory.traits = null;
      this.#takes.clear();
      this.#mode = memory.mode = null;
    }
    memory.lastLabel = label;
    if (!this.#verified || this.#verified.epoch <= epoch) this.#verified = { label, epoch, at: Date.now() };
    return label;
  }

  /** vLLM's scheduler answers between two steps, which take long on a CPU with much to do; its server says meanwhile that it lives. */
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

  /** The JSON of a reply with status 200, else null. */
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
