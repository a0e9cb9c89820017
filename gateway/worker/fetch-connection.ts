import type { EngineConnection, EngineReply, EngineRequest } from '../engines/connection.ts';

/**
 * An engine over `fetch`, which shows no connections: another process may have answered each call. So the epoch rises with
 * every call, and the engine's label is read before it and again after it.
 */
export class FetchConnection implements EngineConnection {
  readonly url: string;
  epoch = 0;
  onChange = null;

  constructor(url: string) {
    this.url = url;
  }

  send(request: EngineRequest): Promise<EngineReply> {
    this.epoch += 1;
    return this.ask(request);
  }

  async ask({ method, path, body, signal }: EngineRequest): Promise<EngineReply> {
    const headers = body === undefined ? undefined : { 'content-type': 'application/json' };
    const response = await fetch(`${this.url}${path}`, { method, body, signal, headers, redirect: 'manual' });
    return { status: response.status, contentType: response.headers.get('content-type') ?? '', body: response.body ?? new Blob([]).stream() };
  }

  async close(): Promise<void> {}
}
