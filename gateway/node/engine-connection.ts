import { Pool } from 'undici';
import type { EngineConnection, EngineReply, EngineRequest } from '../engines/connection.ts';

const CONNECT_MS = 10_000;

/** An engine at `http://host:port` or `unix:/path/to.sock`, over undici. */
export class UndiciConnection implements EngineConnection {
  readonly url: string;
  epoch = 0;
  onChange: (() => void) | null = null;
  readonly #calls: Pool;
  readonly #questions: Pool;

  constructor(url: string) {
    this.url = url;
    this.#calls = openPool(url, null);
    this.#questions = openPool(url, 2);
    const change = () => {
      this.epoch += 1;
      this.onChange?.();
    };
    this.#calls.on('connect', change);
    this.#calls.on('disconnect', change);
  }

  send(request: EngineRequest): Promise<EngineReply> {
    return ask(this.#calls, request);
  }

  ask(request: EngineRequest): Promise<EngineReply> {
    return ask(this.#questions, request);
  }

  async close(): Promise<void> {
    await Promise.all([this.#calls.destroy(), this.#questions.destroy()]);
  }
}

function openPool(url: string, connections: number | null): Pool {
  const socketPath = url.startsWith('unix:') ? url.slice('unix:'.length) : undefined;
  // Silence is the call's own matter: undici would end one after 300 s.
  return new Pool(socketPath === undefined ? new URL(url).origin : 'http://engine', {
    connections,
    pipelining: 1,
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { timeout: CONNECT_MS, socketPath },
  });
}

async function ask(pool: Pool, { method, path, body, signal }: EngineRequest): Promise<EngineReply> {
  const headers = body === undefined ? {} : { 'content-type': 'application/json' };
  const reply = await pool.request({ method, path, body, headers, signal });
  const type = reply.headers['content-type'];
  return { status: reply.statusCode, contentType: Array.isArray(type) ? (type[0] ?? '') : (type ?? ''), body: reply.body };
}
