import { engineSilent, type Failure } from '../failure.ts';
import type { JsonObject } from '../json.ts';
import { readText, type EngineReply } from './connection.ts';
import { engineJson } from './engine-json.ts';
import { IdleWatch } from './idle-watch.ts';
import type { Lease } from './lease.ts';

type Options = {
  /** Aborts when the call is over. */
  signal: AbortSignal;
  /** Ends the call. */
  abort: (why: Failure) => void;
  idleMs: number;
};

/** All requests of one call to one replica. Ends the call when the engine is silent for too long. */
export class Exchange {
  readonly lease: Lease;
  readonly signal: AbortSignal;
  readonly #abort: (why: Failure) => void;
  readonly #idleMs: number;
  readonly #idle: IdleWatch;
  #isStreaming = false;

  constructor(lease: Lease, { signal, abort, idleMs }: Options) {
    this.lease = lease;
    this.signal = signal;
    this.#abort = abort;
    this.#idleMs = idleMs;
    this.#idle = new IdleWatch(idleMs, () => void this.#onSilent());
  }

  post(path: string, body: JsonObject): Promise<EngineReply> {
    const { replica, headers } = this.lease;
    const request = { method: 'POST' as const, path, body: engineJson(body), signal: this.signal, headers };
    return this.#idle.while(replica.connection.send(request));
  }

  /** Returns the next part of a stream. After its first bytes it must not be silent for long. */
  async next(bytes: AsyncIterator<Uint8Array>): Promise<Uint8Array | null> {
    const { done, value } = await this.#idle.while(bytes.next());
    this.#isStreaming = true;
    return done ? null : value;
  }

  readText(body: AsyncIterable<Uint8Array>): Promise<string> {
    return this.#idle.while(readText(body));
  }

  stop(): void {
    this.#idle.stop();
  }

  /** A reply that has not begun may take hours, as long as the engine is alive. */
  async #onSilent(): Promise<void> {
    if (!this.#isStreaming && (await this.lease.replica.isAlive(this.#idleMs))) return;
    this.#abort(engineSilent(this.#idleMs));
  }
}
