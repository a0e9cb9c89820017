import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The server of the tests' engines, which can be stopped and started again at the same address. */
export abstract class EngineServer {
  #server: Server | null = null;
  #port = 0;
  /** Names the engine that answers the server's requests. */
  #answering: { engine: EngineServer } = { engine: this };

  protected abstract respond(request: IncomingMessage, response: ServerResponse): Promise<void>;

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Listens on a free port of the loopback, which it keeps for its next start, or on a Unix socket. */
  async start(socketPath?: string): Promise<this> {
    const answering = this.#answering;
    const server = createServer((request, response) => {
      response.on('error', () => {});
      // The client may be killed at any time.
      answering.engine.respond(request, response).catch(() => response.destroy());
    });
    server.listen(socketPath === undefined ? { port: this.#port, host: '127.0.0.1' } : { path: socketPath });
    await once(server, 'listening');
    if (socketPath === undefined) this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
    return this;
  }

  /** Answers what comes from now on in place of `other`, at its address. */
  takeOver(other: EngineServer): this {
    this.#server = other.#server;
    this.#port = other.#port;
    this.#answering = other.#answering;
    this.#answering.engine = this;
    other.#server = null;
    return this;
  }

  /** Cuts every connection, as SIGKILL does. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    if (!server) return;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

export function json(response: ServerResponse, body: unknown, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
