import type { EngineConnection, EngineReply, EngineRequest } from '../engines/connection.ts';

/** A Worker has 128 MB of memory for all its requests. */
const MAX_REPLY = 32 * 2 ** 20;

/**
 * Connects to an engine over `fetch`, which does not show its connections: another process may answer each call. So the epoch rises with
 * every call, and the engine's weight version is read before and after each.
 */
export class FetchConnection implements EngineConnection {
  readonly url: string;
  epoch = 0;
  onChange = null;
  readonly #maxReply: number;

  constructor(url: string, maxReply = MAX_REPLY) {
    this.url = url;
    this.#maxReply = maxReply;
  }

  send(request: EngineRequest): Promise<EngineReply> {
    this.epoch += 1;
    return this.ask(request);
  }

  async ask({ method, path, body, signal }: EngineRequest): Promise<EngineReply> {
    const headers = body === undefined ? undefined : { 'content-type': 'application/json' };
    const response = await fetch(`${this.url}${path}`, { method, body, signal, headers, redirect: 'manual' });
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
