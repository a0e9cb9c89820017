import { relayPath, relayWorkerOf } from '../../../core/engine-url.ts';
import { readText, type EngineConnection, type EngineReply, type EngineRequest } from '../../engines/connection.ts';
import { EPOCH_HEADER, NO_REPLY } from '../../relay/hello.ts';
import { UndiciConnection } from './engine-connection.ts';

/** The way to the gateway that has a relay worker: its address, the deployment's key for engines, and the lease that is meant, if one is. */
export type Way = { via: string; key: string; epoch?: number };

/**
 * The connection to an engine behind a relay worker whose socket another thread or another gateway holds. It does not see the worker's own
 * connection to the engine. So the epoch rises with every call, and the engine's weight version is read before and after each.
 */
export class HandedConnection implements EngineConnection {
  readonly url: string;
  epoch = 0;
  onChange = null;
  readonly #via: UndiciConnection | null;
  readonly #prefix: string;

  /** The way is null where no relay workers dial in. */
  constructor(url: string, way: Way | null) {
    this.url = url;
    this.#prefix = relayPath(relayWorkerOf(url));
    this.#via = way && new UndiciConnection(way.via, undefined, headersOf(way));
  }

  send(request: EngineRequest): Promise<EngineReply> {
    this.epoch += 1;
    return this.#hand('send', request);
  }

  ask(request: EngineRequest): Promise<EngineReply> {
    return this.#hand('ask', request);
  }

  async close(): Promise<void> {
    await this.#via?.close();
  }

  async #hand(how: 'send' | 'ask', request: EngineRequest): Promise<EngineReply> {
    if (!this.#via) throw new Error('this gateway takes no relay workers: start it with --engine relay');
    const reply = await this.#via[how]({ ...request, path: `${this.#prefix}${request.path}` });
    if (reply.status === NO_REPLY) throw new Error(`its relay worker gave no reply: ${await readText(reply.body)}`);
    return reply;
  }
}

const headersOf = ({ key, epoch }: Way): Record<string, string> => ({
  authorization: `Bearer ${key}`,
  ...(epoch === undefined ? {} : { [EPOCH_HEADER]: `${epoch}` }),
});
