import { IncomingMessage, ServerResponse, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Hono } from 'hono';
import { serve, type Http2Bindings, type HttpBindings, type ServerType } from '@hono/node-server';
import { TrialgateError } from '../../../core/errors.ts';
import type { GatewayEnv } from '../../http/deps.ts';
import { Failure } from '../../failure.ts';
import { LANE_HEADER, type HeavyLane } from './heavy-lane.ts';
import { isDelivered } from './is-delivered.ts';
import type { LaneEnd } from './lane-end.ts';
import { refuseOn } from './raw-refusal.ts';
import type { WorkerSockets } from './worker-sockets.ts';
import { isMostlyUnread, UnreadBodies } from './unread-bodies.ts';

export type ListenOptions = {
  host: string;
  port: number;
  headersTimeoutMs: number;
  lane?: HeavyLane | null;
  own?: LaneEnd | undefined;
  /** Takes the requests for a WebSocket. */
  workerSockets?: WorkerSockets | null;
};

/** Listens. `requestTimeout` is off, because a body and its reply may take long. Node derives the limit for headers from it unless one is set. */
export function listen(
  app: Hono<GatewayEnv>,
  { host, port, headersTimeoutMs, lane, own, workerSockets }: ListenOptions,
): Promise<ServerType> {
  const unread = new UnreadBodies();
  const fetch = async (request: Request, { incoming, outgoing }: HttpBindings | Http2Bindings) => {
    const handed = own?.read(incoming.headers[LANE_HEADER]);
    if (handed === null) return new Response(null, { status: 404 });
    const handOver = async (body: Uint8Array | null) => {
      const refusal =
        incoming instanceof IncomingMessage &&
        outgoing instanceof ServerResponse &&
        (await lane?.handOver(incoming, outgoing, body));
      return refusal || answered();
    };
    const response = await app.fetch(request, {
      cut: () => cut(outgoing),
      delivered: () => handed?.isDelivered(isDelivered(outgoing)) ?? isDelivered(outgoing),
      ...(lane ? { handOver } : {}),
    });
    if (incoming instanceof IncomingMessage && isMostlyUnread(incoming) && !outgoing.headersSent && outgoing.socket) {
      await unread.refuse(response, incoming);
      return answered();
    }
    // Sends the head together with the first part of the body, if that is there. This corks the socket and not the message, because Node
    // would send the end of a short chunked body before its content.
    const { socket } = outgoing;
    socket?.cork();
    setImmediate(() => socket?.uncork());
    return response;
  };
  const serverOptions = {
    requestTimeout: 0,
    headersTimeout: headersTimeoutMs,
    connectionsCheckingInterval: Math.min(headersTimeoutMs, 30_000),
    shouldUpgradeCallback: (request: IncomingMessage) => workerSockets?.takes(request) ?? false,
  };
  return new Promise((resolve, reject) => {
    const server = serve({ fetch, hostname: host, port, serverOptions }, () => resolve(server));
    server.once('error', (error) => reject(portError(error, host, port)));
    (server as Server).on('clientError', refuse);
    if (workerSockets)
      server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) =>
        workerSockets.upgrade(request, socket, head),
      );
  });
}

/**
 * Returns a response that tells Hono's Node server that the reply is already written. Hono looks for the header in responses of the
 * platform's own class.
 */
function answered(): Response {
  const response = new Response(null, { headers: { 'x-hono-already-sent': 'true' } });
  return response.body === null ? response : new Response();
}

/** Breaks a reply off after what was written. A client sees from the missing end that it is incomplete. */
async function cut(outgoing: HttpBindings['outgoing'] | Http2Bindings['outgoing']): Promise<void> {
  // Wait for the head, which is written together with the first part of the body.
  while (!outgoing.headersSent && !outgoing.destroyed) await nextTurn();
  const { socket } = outgoing;
  if (socket) socket.destroySoon();
  else outgoing.destroy();
}

/** Answers bytes that are not an HTTP request, or not one that we accept, because they never become a request. */
function refuse(error: Error, socket: Socket): void {
  if (!socket.writable || ('code' in error && error.code === 'ECONNRESET')) return void socket.destroy();
  refuseOn(socket, failureOf(error));
}

function failureOf(error: Error): Failure {
  const code = 'code' in error ? error.code : undefined;
  if (code === 'HPE_HEADER_OVERFLOW')
    return new Failure(431, 'headers_too_large', 'the headers are larger than 16 KiB: send fewer', {
      retryable: false,
    });
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return new Failure(408, 'request_timeout', 'the headers did not come in time');
  return new Failure(400, 'invalid_request', 'this is not an HTTP request', { retryable: false });
}

function portError(error: Error, host: string, port: number): Error {
  if (!('code' in error) || error.code !== 'EADDRINUSE') return error;
  return new TrialgateError('missing_prerequisite', `port ${port} on ${host} is taken: choose another with --port`, {
    cause: error,
  });
}

/** What is ended may have a sandbox to remove. Its answer says so while its connection is there. */
const END_MS = 6_000;

/** Takes no new calls. Those under way get `drainMs`, and are then cut and recorded as failed. What `settled` waits for gets as long, and is then ended. */
export async function stopServer(
  server: ServerType,
  stopping: AbortController,
  { drainMs, settled }: { drainMs: number; settled: () => Promise<void> },
): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const ended = Promise.withResolvers<void>();
  const timer = setTimeout(async () => {
    stopping.abort();
    setTimeout(ended.resolve, END_MS).unref();
    await Promise.race([settled(), ended.promise]);
    setTimeout(() => (server as Server).closeAllConnections(), 1_000).unref();
  }, drainMs);
  await closed;
  // Whoever asked may have left.
  await Promise.race([settled(), ended.promise]);
  clearTimeout(timer);
}
