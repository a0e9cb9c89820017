import { Hono } from 'hono';
import { joinReplicas, leaveReplica } from '../../../store/queries/register-replicas.ts';
import type { Database } from '../../../store/database.ts';
import { errorResponse, toFailure } from '../../failure.ts';
import { requireAdmin } from '../../http/auth.ts';
import { relayRoutes } from '../../http/relay.ts';
import { CLOSE, CLOSED_BY_WORKER, PING, PONG, withKeyOf, WORKER_SOCKETS } from '../../relay/hello.ts';
import { RelayHub, type KeptWorker, type SocketEvents, type WorkerSocket } from '../../relay/hub.ts';
import { openRequestDatabase } from './database.ts';
import { readEnvironment, type WorkerOptions } from './settings.ts';

/** A WebSocket of workerd, as far as it is used here. */
type RelaySocket = {
  send: (message: string | Uint8Array<ArrayBuffer>) => void;
  close: (code: number, reason: string) => void;
  serializeAttachment: (value: KeptWorker) => void;
  deserializeAttachment: () => KeptWorker | null;
};
declare const WebSocketRequestResponsePair: new (request: string, response: string) => object;
declare const WebSocketPair: new () => [client: RelaySocket, server: RelaySocket];

type State = {
  /** Lets the object hibernate while the socket stays open. */
  acceptWebSocket: (socket: RelaySocket) => void;
  getWebSockets: () => RelaySocket[];
  /** Answers this text without waking the object. */
  setWebSocketAutoResponse: (pair: object) => void;
  waitUntil: (work: Promise<unknown>) => void;
};

/**
 * The Durable Object that holds the sockets of all relay workers. While no call is under way and nothing comes, Cloudflare may remove it from
 * memory; the sockets stay, and with each the numbers of its frames, by which its session goes on. A call under way keeps it in memory.
 */
export class RelayObject {
  readonly #state: State;
  readonly #options: WorkerOptions;
  readonly #hub: RelayHub;
  readonly #sockets = new Map<RelaySocket, SocketEvents>();
  readonly #app: Hono;
  #writing: Promise<void> = Promise.resolve();

  constructor(state: State, env: Record<string, unknown>) {
    this.#state = state;
    this.#options = readEnvironment(env);
    this.#hub = new RelayHub({
      // There is one such object, so it has every worker.
      claim: async () => 1,
      onJoin: () => this.#write((db) => joinReplicas(db, this.#hub.urls)),
      onLeave: ({ url }) =>
        this.#write(async (db) => {
          if (!this.#hub.knows(url)) await leaveReplica(db, url);
        }),
      log: this.#options.log,
    });
    const { adminKey, secret } = this.#options;
    this.#app = new Hono()
      .get(WORKER_SOCKETS, ({ req }) => {
        requireAdmin({ adminKey }, withKeyOf(req.url, new Headers(req.raw.headers)));
        return this.#open();
      })
      .route('/', relayRoutes({ relay: this.#hub, adminKey, secret }))
      .onError((error) => errorResponse(toFailure(error)));
    state.setWebSocketAutoResponse(new WebSocketRequestResponsePair(PING, PONG));
    for (const socket of state.getWebSockets()) this.#restore(socket);
  }

  async fetch(request: Request): Promise<Response> {
    return this.#app.fetch(request);
  }

  webSocketMessage(socket: RelaySocket, message: string | ArrayBuffer): void {
    this.#sockets.get(socket)?.onMessage(typeof message === 'string' ? message : new Uint8Array(message));
  }

  webSocketClose(socket: RelaySocket, code: number): void {
    this.#sockets.get(socket)?.onClose(code === CLOSED_BY_WORKER);
    this.#sockets.delete(socket);
    // The worker's close waits for this answer.
    asWorkerSocket(socket).close(CLOSED_BY_WORKER, '');
  }

  webSocketError(socket: RelaySocket): void {
    this.webSocketClose(socket, 0);
  }

  #open(): Response {
    const [client, server] = new WebSocketPair();
    this.#state.acceptWebSocket(server);
    this.#sockets.set(server, this.#hub.accept(asWorkerSocket(server)));
    const upgraded: ResponseInit & { webSocket: RelaySocket } = { status: 101, webSocket: client };
    return new Response(null, upgraded);
  }

  #restore(socket: RelaySocket): void {
    const kept = socket.deserializeAttachment();
    if (!kept) return socket.close(CLOSE.badHello, 'no worker_hello came');
    this.#sockets.set(socket, this.#hub.restore(asWorkerSocket(socket), kept));
    this.#options.log(`relay worker ${kept.lease.url} goes on after hibernation`);
  }

  /** One write after the other, so that a worker that leaves and comes back is there in the end. */
  #write(work: (db: Database) => Promise<void>): void {
    this.#writing = this.#writeAfter(this.#writing, work);
    this.#state.waitUntil(this.#writing);
  }

  async #writeAfter(before: Promise<void>, work: (db: Database) => Promise<void>): Promise<void> {
    await before;
    const db = openRequestDatabase(this.#options.databaseUrl);
    try {
      await work(db);
    } catch (error) {
      this.#options.log(`relay workers cannot be written to the store: ${String(error)}`, { level: 'error' });
    } finally {
      await db.$client.end();
    }
  }
}

const asWorkerSocket = (socket: RelaySocket): WorkerSocket => ({
  send: (message) => socket.send(message),
  // It may have been closed by the other end.
  close: (code, reason) => {
    try {
      socket.close(code, reason);
    } catch {}
  },
  keep: (worker) => socket.serializeAttachment(worker),
});
