import { once } from 'node:events';
import { chmod } from 'node:fs/promises';
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { join as joinPath } from 'node:path';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  carriesAnything,
  findRule,
  HTTP_PORT,
  HTTPS_PORT,
  parseHostAndPort,
  readRules,
  type HostRule,
} from '../../../core/host-rules.ts';
import { listenIn } from '../listen-in.ts';
import { EGRESS_SOCKET } from '../network.ts';
import { Pace } from '../pace.ts';
import { EgressLog, type EgressRow } from './egress-log.ts';
import {
  hasBody,
  readTarget,
  requestHeaders,
  requireOneMeaning,
  responseHeaders,
  type Target,
} from './http-message.ts';
import { connectTo, openOutside, type Outside } from './outside.ts';
import { Refusal, STATUS } from './refusal.ts';
import { join, passHello, readFirst } from './tunnel.ts';

/** The limits of one sandbox's proxy. */
const LIMITS = {
  /** Connections of the sandbox above this number are closed at once. The sandbox's relay holds fewer and lets the others wait. */
  inside: 600,
  /** Connections to other hosts above this number are refused. One connection of the sandbox makes many only if it waits for no answer. */
  outside: 512,
  /** These two keep a sandbox that connects in a loop from using up its host's ports. */
  perSecond: 100,
  burst: 512,
  headerBytes: 16_384,
  /** The headers of a request, or a ClientHello, must be complete within this time. */
  beginMs: 20_000,
  /** A connection that is silent for so long is closed. */
  idleMs: 300_000,
};

export type EgressOptions = {
  /** The list of hosts. */
  hosts: readonly string[];
  /** The folder for the proxy's socket, which the sandbox does not see. */
  folder: string;
  outside?: Outside;
  limits?: Partial<typeof LIMITS>;
};

export type EgressProxy = {
  /** The Unix socket to mount into the sandbox. */
  socket: string;
  /** Returns true when the relay inside the sandbox has reported that it works. */
  relayStarted: () => boolean;
  /** Ends all connections, and returns what was asked. */
  close: () => Promise<EgressRow[]>;
};

/**
 * Opens the proxy of one sandbox: CONNECT for TLS, and plain HTTP. It resolves names and connects by itself, and reaches only what the list
 * has. It reads the server name of TLS and the host of each HTTP request, so a connection to a listed host serves no other.
 */
export async function openEgressProxy({
  hosts,
  folder,
  outside = openOutside(),
  limits,
}: EgressOptions): Promise<EgressProxy> {
  const proxy = new Server(hosts, outside, { ...LIMITS, ...limits });
  const stop = await listenIn(proxy.http, folder, EGRESS_SOCKET);
  const socket = joinPath(folder, EGRESS_SOCKET);
  try {
    // The folder is closed to other users. The sandbox's own user may only connect.
    await chmod(socket, 0o666);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    socket,
    relayStarted: () => proxy.wasConnected,
    close: async () => {
      const stopped = stop();
      outside.close();
      await proxy.end();
      await stopped;
      return proxy.log.rows();
    },
  };
}

/** A connection to another host. */
type Connected = {
  socket: Socket;
  /** Ends it, and logs it as refused. */
  refuse: (refusal: Refusal) => void;
};

class Server {
  readonly log = new EgressLog();
  readonly http: ReturnType<typeof createServer>;
  wasConnected = false;
  readonly #hosts: readonly string[];
  readonly #rules: HostRule[];
  readonly #outside: Outside;
  readonly #limits: typeof LIMITS;
  readonly #pace: Pace;
  readonly #inside = new Set<Socket>();
  readonly #connected = new Set<Socket>();
  #connecting = 0;
  readonly #stop = new AbortController();
  /** The tunnels that carry plain HTTP. */
  readonly #tunnels = new WeakMap<Socket, Target>();

  constructor(hosts: readonly string[], outside: Outside, limits: typeof LIMITS) {
    this.#hosts = hosts;
    this.#rules = readRules(hosts);
    this.#outside = outside;
    this.#limits = limits;
    this.#pace = new Pace(limits.perSecond, limits.burst);
    this.http = this.#createServer();
    this.http.maxConnections = limits.inside;
    this.http.on('connection', (socket: Socket) => {
      this.wasConnected = true;
      this.#inside.add(socket);
      socket.once('close', () => this.#inside.delete(socket));
    });
    this.http.on('connect', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      if (socket instanceof Socket) void this.#connect(request, socket, head).catch(() => socket.destroy());
    });
  }

  #createServer(): ReturnType<typeof createServer> {
    const { headerBytes, beginMs, idleMs } = this.#limits;
    const server = createServer(
      {
        maxHeaderSize: headerBytes,
        headersTimeout: beginMs,
        // A large body may take long.
        requestTimeout: 0,
        connectionsCheckingInterval: Math.min(beginMs, 5000),
      },
      (request, response) => void this.#request(request, response).catch(() => request.socket.destroy()),
    );
    server.timeout = idleMs;
    return server;
  }

  async end(): Promise<void> {
    this.#stop.abort();
    const closed = [...this.#connected].map((socket) => once(socket, 'close'));
    for (const socket of [...this.#inside, ...this.#connected]) socket.destroy();
    await Promise.all(closed);
  }

  /** Answers a request for plain HTTP. */
  async #request(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let target: Target | null = this.#tunnels.get(request.socket) ?? null;
    try {
      const { path, ...asked } = readTarget(request, target);
      target = asked;
      this.#requireRule(target);
      if (target.port === HTTPS_PORT)
        throw new Refusal('forbidden', 'port 443 is for TLS alone: ask for a tunnel by CONNECT');
      requireOneMeaning(request, target);
      const { socket } = await this.#reach(target);
      // The client may have left meanwhile, and a response that is closed does not say so again.
      if (response.destroyed || request.socket.destroyed) socket.destroy();
      else forward(request, response, { target, path, socket });
    } catch (error) {
      const { status, reason, body } = this.#explain(error, target);
      if (response.headersSent || response.destroyed) response.destroy();
      else response.writeHead(status, reason, { 'content-type': 'text/plain', connection: 'close' }).end(body);
    }
  }

  /** Answers CONNECT. */
  async #connect({ url = '' }: IncomingMessage, inside: Socket, head: Buffer): Promise<void> {
    inside.on('error', () => {});
    inside.setTimeout(this.#limits.idleMs, () => inside.destroy());
    if (head.length > 0) inside.unshift(head);
    let target: Target | null = null;
    let connected: Connected | null = null;
    let rule: HostRule;
    try {
      if (this.#tunnels.has(inside)) throw new Refusal('bad_request', 'this connection is a tunnel already');
      target = readConnect(url);
      rule = this.#requireRule(target);
      if (target.port !== HTTP_PORT) connected = await this.#reach(target);
    } catch (error) {
      const { status, reason, body } = this.#explain(error, target);
      const headers = `Content-Type: text/plain\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close`;
      endWith(inside, `HTTP/1.1 ${status} ${reason}\r\n${headers}\r\n\r\n${body}`);
      return;
    }
    inside.write('HTTP/1.1 200 Connection established\r\n\r\n');
    if (connected === null) {
      this.#tunnels.set(inside, target);
      this.http.emit('connection', inside);
      return;
    }
    try {
      await this.#tunnel(inside, connected.socket, target.host, carriesAnything(rule));
    } catch (error) {
      connected.refuse(asRefusal(error));
      endWith(inside, ALERT);
    }
  }

  async #tunnel(inside: Socket, outside: Socket, host: string, isAnything: boolean): Promise<void> {
    const { beginMs, idleMs } = this.#limits;
    inside.once('close', () => outside.destroy());
    // In some protocols the server speaks first.
    const first = isAnything ? await readFirst(inside, idleMs, { unless: outside }) : await readFirst(inside, beginMs);
    const isTls = first !== null && first.beginning.kind !== 'other';
    if (!isTls && !isAnything) throw new Refusal('forbidden', 'the tunnel is for TLS');
    if (isTls && !(await passHello(first, { inside, outside, host, ms: idleMs }))) outside.destroy();
    if (!isTls && first) outside.write(first.bytes);
    join(inside, outside);
  }

  #requireRule(target: Target): HostRule {
    const rule = findRule(this.#rules, target);
    if (rule === null) throw new Refusal('forbidden', NOT_LISTED);
    return rule;
  }

  /** Connects to an allowed host, and logs the connection when it has ended. */
  async #reach(target: Target): Promise<Connected> {
    const { outside, idleMs } = this.#limits;
    const { signal } = this.#stop;
    if (this.#connected.size + this.#connecting >= outside)
      throw new Refusal('busy', `more than ${outside} connections at once`);
    this.#connecting += 1;
    let socket: Socket;
    try {
      const delay = this.#pace.delay(performance.now());
      if (delay > 0) await sleep(delay, undefined, { signal });
      socket = await connectTo(target, this.#outside, signal);
    } finally {
      this.#connecting -= 1;
    }
    this.#connected.add(socket);
    let fault: string | null = null;
    socket.once('close', () => {
      this.#connected.delete(socket);
      this.log.add({ ...target, fault, sent: socket.bytesWritten, received: socket.bytesRead });
    });
    socket.setTimeout(idleMs, () => socket.destroy());
    return {
      socket,
      refuse: (refusal) => {
        fault = faultOf(refusal);
        socket.destroy();
      },
    };
  }

  /** Logs why something was refused, and returns an answer that says it. */
  #explain(error: unknown, target: Target | null): { status: number; reason: string; body: string } {
    const refusal = asRefusal(error);
    const { host, port } = target ?? { host: 'a request without a host', port: 0 };
    this.log.add({ host, port, fault: faultOf(refusal) });
    const sentence = toPrintable(
      `${target === null ? 'the request' : `${host}:${port}`} ${refusal.kind === 'failed' ? '' : 'was '}${faultOf(refusal)}`,
    );
    const help =
      refusal.message === NOT_LISTED
        ? `This sandbox reaches ${this.#hosts.join(', ')}. To allow more, add it to the list in the run file or in the agent's file: \`network: [${[HTTP_PORT, HTTPS_PORT].includes(port) ? host : `${host}:${port}`}]\`.\n`
        : '';
    return { status: STATUS[refusal.kind], reason: sentence, body: `Trialgate: ${sentence}.\n${help}` };
  }
}

/** Sends the last bytes of a connection, and waits a little until the client has them. */
function endWith(inside: Socket, bytes: string | Buffer): void {
  inside.end(bytes);
  inside.resume();
  inside.setTimeout(LAST_MS);
}

const LAST_MS = 5000;
const NOT_LISTED = 'it is not in the list of this sandbox';
/** The alert `unrecognized_name` of TLS, which clients report to people. */
const ALERT = Buffer.from([21, 3, 3, 0, 2, 2, 112]);

/** What Node itself refuses to send or to read ends one connection, and nothing else. */
const asRefusal = (error: unknown): Refusal =>
  error instanceof Refusal ? error : new Refusal('failed', error instanceof Error ? error.message : String(error));

/** An answer's first line takes only these characters. */
const toPrintable = (text: string): string => text.replace(/[^ -~]/g, '?').slice(0, 200);

const faultOf = ({ kind, message }: Refusal): string => `${kind === 'failed' ? 'failed' : 'refused'}: ${message}`;

function readConnect(authority: string): Target {
  const found = parseHostAndPort(authority);
  if (found === null || found.port === null) throw new Refusal('bad_request', 'CONNECT takes HOST:PORT');
  return { host: found.host, port: found.port };
}

/** Sends a request to the server at `socket`, and its response back. */
function forward(
  request: IncomingMessage,
  response: ServerResponse,
  { target, path, socket }: { target: Target; path: string; socket: Socket },
): void {
  const outgoing = httpRequest({
    createConnection: () => socket,
    method: request.method,
    path,
    headers: requestHeaders(request, target),
    setHost: false,
  });
  const fail = (): void => {
    if (response.headersSent) response.destroy();
    else response.writeHead(STATUS.failed, { connection: 'close' }).end(`Trialgate: ${target.host} gave no answer.\n`);
  };
  request.on('error', () => {});
  response.on('error', () => {});
  response.once('close', () => socket.destroy());
  outgoing.on('error', fail);
  outgoing.once('close', () => response.headersSent || fail());
  outgoing.once('response', (incoming) => {
    incoming.on('error', () => response.destroy());
    // Nothing asked the server to change the protocol.
    if (incoming.statusCode === 101) return fail();
    try {
      response.writeHead(incoming.statusCode ?? 0, incoming.statusMessage, responseHeaders(incoming));
      incoming.pipe(response);
    } catch {
      // Node reads some answers that it does not write.
      fail();
    }
  });
  if (hasBody(request)) request.pipe(outgoing);
  else outgoing.end();
}
