import { listenerOf, pathBelow } from '../../../core/engine-url.ts';
import { NO_REPLY } from '../../relay/hello.ts';
import type { EngineConnection, EngineReply, EngineRequest } from '../../engines/connection.ts';
import type { RelayStub } from './settings.ts';

/** A Worker has 128 MB of memory for all its requests. */
const MAX_REPLY = 32 * 2 ** 20;

type Way = { relay: RelayStub; address: string };

/**
 * Connects to an engine over `fetch`, which does not show its connections: another process may answer each call. So the epoch rises with
 * every call, and the engine's weight version is read before and after each.
 */
export class FetchConnection implements EngineConnection {
  readonly url: string;
  readonly #maxReply: number;
  readonly #headers: Record<string, string>;
  readonly #to: (path: string, init: RequestInit) => Promise<Response>;
  epoch = 0;
  onChange = null;

  /** `headers` go with every request. `way` leads to an engine behind a relay worker. */
  constructor(url: string, maxReply = MAX_REPLY, headers: Record<string, string> = {}, way: Way | null = null) {
    this.url = url;
    this.#headers = headers;
    this.#maxReply = maxReply;
    if (way) {
      this.#to = (path, init) => way.relay.fetch(`${way.address}${path}`, init);
    } else {
      const { origin, base } = listenerOf(url);
      this.#to = (path, init) => fetch(`${origin}${pathBelow(base, path)}`, init);
    }
  }

  send(request: EngineRequest): Promise<EngineReply> {
    this.epoch += 1;
    return this.ask(request);
  }

  async ask({ method, path, body, signal, headers: own }: EngineRequest): Promise<EngineReply> {
    const all = { ...this.#headers, ...own };
    const headers = body === undefined ? all : { ...all, 'content-type': 'application/json' };
    const response = await this.#to(path, { method, body, signal, headers, redirect: 'manual' });
    if (response.status === NO_REPLY) throw new Error(`its relay worker gave no reply: ${await response.text()}`);
    return {
      status: response.status,
      contentType: response.headers.get('content-type') ?? '',
      body: response.body ? limited(response.body, this.#maxReply) : new Blob([]).stream(),
    };
  }

  async close(): Promise<void> {}
}

/** Yields at most `maxBytes`. Leaving the loop early closes the reply. */
async function* limited(body: ReadableStream<Uint8Array>, maxBytes: number): AsyncGenerator<Uint8Array> {
  let size = 0;
  for await (const part of body) {
    size += part.byteLength;
    if (size > maxBytes) throw new Error('the reply is too long');
    yield part;
  }
}
