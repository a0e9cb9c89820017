import type { EngineConnection, EngineReply, EngineRequest } from '../../engines/connection.ts';
import { HandedConnection, type Way } from './handed-connection.ts';

type Options = {
  url: string;
  /** The connection over this gateway's own socket. */
  here: EngineConnection;
  isHere: () => boolean;
  /** Returns the way to the other gateway that has the worker; null when none is known. */
  elsewhere: () => Way | null;
};

/** The connection to an engine behind a relay worker, whichever gateway has the worker. */
export class RelayedConnection implements EngineConnection {
  readonly url: string;
  readonly #options: Options;
  #away: { way: Way; connection: HandedConnection } | null = null;
  #moves = 0;

  constructor(options: Options) {
    this.url = options.url;
    this.#options = options;
  }

  get epoch(): number {
    return this.#options.here.epoch + this.#moves;
  }

  get onChange(): (() => void) | null {
    return this.#options.here.onChange;
  }

  set onChange(listener: (() => void) | null) {
    this.#options.here.onChange = listener;
  }

  async send(request: EngineRequest): Promise<EngineReply> {
    const connection = this.#connection();
    if (connection !== this.#options.here) this.#moves += 1;
    return connection.send(request);
  }

  async ask(request: EngineRequest): Promise<EngineReply> {
    return this.#connection().ask(request);
  }

  async close(): Promise<void> {
    const away = this.#away;
    this.#away = null;
    await away?.connection.close();
  }

  #connection(): EngineConnection {
    const { url, here, isHere, elsewhere } = this.#options;
    const way = isHere() ? null : elsewhere();
    if (this.#away && this.#away.way.epoch === way?.epoch) return this.#away.connection;
    // Requests under way at the earlier gateway end with it.
    if (this.#away) void this.close();
    if (!way) return here;
    this.#moves += 1;
    this.#away = { way, connection: new HandedConnection(url, way) };
    return this.#away.connection;
  }
}
