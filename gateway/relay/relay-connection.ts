import type { EngineConnection, EngineReply, EngineRequest } from '../engines/connection.ts';
import type { WorkerSession } from './session.ts';

/** The connection to an engine behind a worker. It stays while sessions of the worker come and go. */
export class RelayConnection implements EngineConnection {
  readonly url: string;
  epoch = 0;
  onChange: (() => void) | null = null;
  #session: WorkerSession | null = null;

  constructor(url: string) {
    this.url = url;
  }

  /** Sets the session that takes requests from now on; null while there is none. */
  use(session: WorkerSession | null): void {
    this.#session = session;
    this.changed();
  }

  /** Another process may answer from now on. */
  changed(): void {
    this.epoch += 1;
    if (this.#session) this.onChange?.();
  }

  send(request: EngineRequest): Promise<EngineReply> {
    return this.#exchange(request, false);
  }

  ask(request: EngineRequest): Promise<EngineReply> {
    return this.#exchange(request, true);
  }

  /** The hub ends the sessions. */
  async close(): Promise<void> {}

  #exchange(request: EngineRequest, isQuestion: boolean): Promise<EngineReply> {
    // New requests go elsewhere meanwhile; those under way wait for the worker.
    if (!this.#session?.isConnected)
      return Promise.reject(new Error('its relay worker is not connected to this gateway'));
    return this.#session.exchange(request, isQuestion);
  }
}
