import type { IncomingMessage } from 'node:http';
import type { Server } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type RawData, type WebSocket } from 'ws';
import { sleep } from '../../../core/sleep.ts';
import { toFailure } from '../../failure.ts';
import { requireAdmin } from '../../http/auth.ts';
import { CLOSE, CLOSED_BY_WORKER, MAX_MESSAGE_BYTES, withKeyOf, WORKER_SOCKETS } from '../../relay/hello.ts';
import type { RelayHub } from '../../relay/hub.ts';
import { inOneWrite } from './in-one-write.ts';
import { refuseOn } from './raw-refusal.ts';

/** A socket that answers no ping for two of these intervals is taken for dead. */
const PING_MS = 15_000;

const ROUTE = new RegExp(`^${WORKER_SOCKETS}/?(\\?|$)`);

type Options = { adminKey: string | null; hub: RelayHub | null };

/** The route at which relay workers dial in with the admin key. */
export class WorkerSockets {
  readonly #options: Options;
  readonly #sockets = new WebSocketServer({
    noServer: true,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: false,
  });

  constructor(options: Options) {
    this.#options = options;
  }

  /** True for a request that is ours to upgrade. All others are answered as if they asked for no upgrade. */
  takes({ url = '', headers }: IncomingMessage): boolean {
    return ROUTE.test(url) && headers.upgrade?.toLowerCase() === 'websocket';
  }

  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', () => socket.destroy());
    try {
      requireAdmin(this.#options, headersOf(request));
    } catch (error) {
      return refuseOn(socket, toFailure(error));
    }
    this.#sockets.handleUpgrade(request, socket, head, (opened) => this.#serve(opened, socket));
  }

  /** Closes the workers' sockets once no other connection of the stopping server is left, because calls may still need them. */
  async closeAfter(server: Server, isClosed: () => boolean): Promise<void> {
    while (!isClosed() && (await connectionsOf(server)) > this.#sockets.clients.size) await sleep(20);
    this.#options.hub?.close();
    for (const socket of this.#sockets.clients) socket.close(1001, 'the gateway is stopping');
    for (let waited = 0; this.#sockets.clients.size > 0 && waited < 1_000; waited += 20) await sleep(20);
    for (const socket of this.#sockets.clients) socket.terminate();
  }

  #serve(socket: WebSocket, stream: Duplex): void {
    socket.on('error', () => socket.terminate());
    const { hub } = this.#options;
    if (!hub) return socket.close(CLOSE.noRelay, 'not in relay mode: start the gateway with --engine relay');
    const events = hub.accept({
      send: inOneWrite(stream, (message) => socket.send(message)),
      close: (code, reason) => socket.close(code, reason),
    });
    let unanswered = 0;
    const timer = setInterval(() => {
      unanswered += 1;
      if (unanswered > 2) socket.terminate();
      else socket.ping();
    }, PING_MS);
    socket.on('pong', () => (unanswered = 0));
    socket.on('message', (data, isBinary) => {
      unanswered = 0;
      const bytes = bytesOf(data);
      events.onMessage(isBinary ? bytes : bytes.toString());
    });
    socket.on('close', (code) => {
      clearInterval(timer);
      events.onClose(code === CLOSED_BY_WORKER);
    });
  }
}

function headersOf(request: IncomingMessage): Headers {
  const headers = new Headers();
  for (const name of ['authorization', 'host', 'origin'] as const) {
    const value = request.headers[name];
    if (value !== undefined) headers.set(name, value);
  }
  return withKeyOf(request.url ?? '', headers);
}

const bytesOf = (data: RawData): Buffer =>
  Buffer.isBuffer(data) ? data : Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data);

const connectionsOf = (server: Server): Promise<number> =>
  new Promise((resolve) => server.getConnections((error, count) => resolve(error ? 0 : count)));
