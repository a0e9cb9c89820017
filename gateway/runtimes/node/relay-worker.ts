import { WebSocket } from 'ws';
import type { Log } from '../../../core/log.ts';
import { engineAt } from '../../../core/engine-url.ts';
import { TrialgateError } from '../../../core/errors.ts';
import { sleep } from '../../../core/sleep.ts';
import { readText, type EngineConnection } from '../../engines/connection.ts';
import { keyHeader, type EngineKeys } from '../../engines/engine-keys.ts';
import {
  CLOSE,
  helloAck,
  MAX_MESSAGE_BYTES,
  OWN_FRAMES,
  PING,
  PONG,
  WORKER_SOCKETS,
  type Hello,
} from '../../relay/hello.ts';
import { CheckpointConnection } from '../../relay/checkpoint-connection.ts';
import type { Outlet } from '../../relay/link.ts';
import { RequestServer } from '../../relay/request-server.ts';
import { CheckpointCopies } from './checkpoint-copies.ts';
import { inOneWrite } from './in-one-write.ts';
import { UndiciConnection } from './engine-connection.ts';

export type RelayWorkerOptions = {
  /** The gateway's URL. */
  gateway: string;
  /** The engine's URL (`core/engine-url.ts`). */
  engine: string;
  /** The key of an `openai+` engine. */
  engineKeys?: EngineKeys;
  id: string;
  adminKey: string | null;
  /** The folder into which it fetches the checkpoints that its engine loads. If absent, the engine loads them from the deployment's folder. */
  checkpoints?: string | undefined;
  log: Log;
  /** The shortest and the longest pause before it dials again. */
  backOffMs?: { least: number; most: number };
  /** The time for which requests under way may go on after `signal` has aborted. */
  drainMs?: number;
};

const BACK_OFF_MS = { least: 1_000, most: 30_000 };
const DRAIN_MS = 10_000;
const CONNECT_MS = 10_000;
const PROGRESS_MS = 60_000;
/** It pings the gateway at this interval, because a Durable Object cannot ping it. */
const PING_MS = 15_000;
const SILENCE_MS = 45_000;
const ASK_ENGINE_MS = 10_000;

/** Dials a gateway and serves its requests with an engine that the gateway cannot reach, until `signal` aborts. */
export async function runRelayWorker(options: RelayWorkerOptions, signal: AbortSignal): Promise<void> {
  const engine = new UndiciConnection(options.engine, undefined, keyHeader(options.engineKeys ?? {}, options.engine));
  let copies: CheckpointCopies | null = null;
  try {
    copies = await openCopies(options, engine, signal);
    await requireEngine(engine, signal);
    await new RelayWorker(options, new CheckpointConnection(engine, copies, options.log)).run(signal);
  } finally {
    await copies?.close();
    await engine.close();
  }
}

async function openCopies(
  { checkpoints: folder, gateway, adminKey, log, backOffMs = BACK_OFF_MS }: RelayWorkerOptions,
  engine: EngineConnection,
  signal: AbortSignal,
): Promise<CheckpointCopies | null> {
  if (folder === undefined) return null;
  const modelsOfEngine = async () => {
    const { status, text } = await askForModels(engine, signal);
    if (status !== 200) throw new Error(`the engine answered ${status} at /v1/models`);
    return text;
  };
  return CheckpointCopies.open({ folder, gateway, adminKey, modelsOfEngine, backOffMs, log }, signal);
}

/** The end of a connection to the gateway. */
type Ended = { error: TrialgateError | null; wasGreeted: boolean; why: string };

class RelayWorker {
  readonly #options: RelayWorkerOptions;
  readonly #engine: EngineConnection;
  readonly #session = crypto.randomUUID();
  #server: RequestServer;
  #socket: WebSocket | null = null;

  constructor(options: RelayWorkerOptions, engine: EngineConnection) {
    this.#options = options;
    this.#engine = engine;
    this.#server = new RequestServer(engine);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { log, backOffMs: { least, most } = BACK_OFF_MS } = this.#options;
    const progress = setInterval(() => log(this.#progress()), PROGRESS_MS);
    const stopped = new AbortController();
    const stop = async () => {
      await this.#stop();
      stopped.abort();
      this.#socket?.terminate();
    };
    const onAbort = () => void stop();
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    let longest = least;
    try {
      while (!stopped.signal.aborted) {
        const { error, wasGreeted, why } = await this.#connect();
        if (error) throw error;
        if (stopped.signal.aborted || (signal.aborted && this.#server.inFlight === 0)) return;
        longest = wasGreeted ? least : Math.min(longest * 2, most);
        // Workers that were cut together do not come back together.
        const pause = longest * (0.5 + Math.random() / 2);
        log(`${why}: dials again in ${(pause / 1000).toFixed(1)} s`, { level: 'warning' });
        await sleep(pause, stopped.signal).catch(() => {});
      }
    } finally {
      clearInterval(progress);
      signal.removeEventListener('abort', onAbort);
      this.#server.abort(new Error('the relay worker has stopped'));
      this.#socket?.terminate();
    }
  }

  /** Lets the requests under way end, and says goodbye. */
  async #stop(): Promise<void> {
    const { log, drainMs = DRAIN_MS } = this.#options;
    this.#server.link.send({ kind: 'leaving', exchange: 0 });
    if (this.#server.inFlight > 0) log(`stops after ${this.#server.inFlight} requests under way`);
    await Promise.race([this.#server.idle(), sleep(drainMs)]);
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN) return;
    const closed = new Promise<void>((resolve) => void socket.once('close', () => resolve()));
    socket.close(1000, 'the worker is stopping');
    await Promise.race([closed, sleep(1_000)]);
  }

  /** Serves over one socket until it closes. */
  #connect(): Promise<Ended> {
    const { gateway, adminKey } = this.#options;
    const socket = new WebSocket(socketUrl(gateway), {
      headers: adminKey === null ? {} : { authorization: `Bearer ${adminKey}` },
      maxPayload: MAX_MESSAGE_BYTES,
      perMessageDeflate: false,
      handshakeTimeout: CONNECT_MS,
    });
    this.#socket = socket;
    const ended = Promise.withResolvers<Ended>();
    let isGreeted = false;
    let refusal: TrialgateError | null = null;
    let why = 'the connection to the gateway was cut';
    const silence = setTimeout(() => socket.terminate(), SILENCE_MS);
    const noteSign = () => void silence.refresh();
    socket.on('ping', noteSign);
    const pings = setInterval(() => isGreeted && socket.send(PING), PING_MS);
    socket.on('unexpected-response', (_request, response) => {
      const status = response.statusCode ?? 0;
      refusal = refusalOfStatus(status, gateway);
      why = `the gateway answered ${status}`;
      response.resume();
      socket.terminate();
    });
    socket.on('error', (error) => {
      if (!isGreeted && refusal === null) why = `the gateway at ${gateway} cannot be reached (${error.message})`;
    });
    let send = (message: Uint8Array<ArrayBuffer>) => socket.send(message);
    socket.on('upgrade', ({ socket: stream }) => (send = inOneWrite(stream, send)));
    socket.on('open', () => socket.send(JSON.stringify(this.#hello())));
    socket.on('message', (data: Buffer, isBinary) => {
      noteSign();
      try {
        if (isBinary) return this.#server.link.receive(data);
        if (data.toString() === PONG) return;
        this.#greeted(send, data.toString());
        isGreeted = true;
      } catch (error) {
        why = `the gateway sent what is not of this protocol (${error instanceof Error ? error.message : String(error)})`;
        socket.terminate();
      }
    });
    socket.on('close', (code, reason) => {
      clearTimeout(silence);
      clearInterval(pings);
      this.#server.link.detach();
      this.#socket = null;
      ended.resolve({
        error: refusal ?? refusalOfClose(code, reason.toString(), this.#options),
        wasGreeted: isGreeted,
        why,
      });
    });
    return ended.promise;
  }

  #hello(): Hello {
    const { id, engine } = this.#options;
    return {
      type: 'worker_hello',
      worker_id: id,
      protocols: [OWN_FRAMES],
      session: this.#session,
      received: this.#server.link.received,
      engine: engineAt(engine).kind,
    };
  }

  #greeted(send: Outlet['send'], text: string): void {
    const { gateway, id, engine, log } = this.#options;
    const { protocol, resumed, received } = helloAck.parse(JSON.parse(text));
    if (protocol !== OWN_FRAMES)
      throw new Error(`it does not know the frames ${OWN_FRAMES}: give both the same version`);
    if (!resumed) {
      const lost = this.#server.inFlight;
      this.#server.abort(new Error('the gateway has given this session up'));
      this.#server = new RequestServer(this.#engine);
      if (lost > 0)
        log(`the gateway has lost this session: ${lost} requests under way were stopped`, { level: 'warning' });
    }
    this.#server.link.attach({ send }, received);
    log(`connected to ${gateway} as ${id}, serves ${engine}`);
  }

  #progress(): string {
    const state = this.#server.link.isAttached ? 'connected' : 'not connected';
    return `${state}, ${this.#server.inFlight} requests under way, ${this.#server.served} served`;
  }
}

async function askForModels(engine: EngineConnection, signal: AbortSignal): Promise<{ status: number; text: string }> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(ASK_ENGINE_MS)]);
  const { status, body } = await engine.ask({ method: 'GET', path: '/v1/models', signal: limit });
  return { status, text: await readText(body) };
}

async function requireEngine(engine: EngineConnection, signal: AbortSignal): Promise<void> {
  try {
    await askForModels(engine, signal);
  } catch (error) {
    signal.throwIfAborted();
    throw new TrialgateError(
      'missing_prerequisite',
      `the engine ${engine.url} does not answer: start it, or correct --engine`,
      { cause: error },
    );
  }
}

function socketUrl(gateway: string): string {
  const url = new URL(`${gateway.replace(/\/+$/, '')}${WORKER_SOCKETS}`);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url.href;
}

/** Returns why it is no use to dial again; null when it may be. */
function refusalOfStatus(status: number, gateway: string): TrialgateError | null {
  if (status === 401)
    return new TrialgateError(
      'unauthorized',
      `the gateway at ${gateway} refuses the admin key: set --admin-key to its own`,
    );
  if (status === 403)
    return new TrialgateError(
      'unauthorized',
      `the gateway at ${gateway} has no admin key, so workers reach it only from its own machine: start it with --admin-key`,
    );
  if (status === 404 || status === 426)
    return new TrialgateError(
      'bad_input',
      `there is no gateway with relay workers at ${gateway}: correct --gateway, or upgrade that gateway`,
    );
  return null;
}

function refusalOfClose(code: number, reason: string, { gateway, id }: RelayWorkerOptions): TrialgateError | null {
  if (code === CLOSE.noRelay)
    return new TrialgateError(
      'missing_prerequisite',
      `the gateway at ${gateway} is not in relay mode: start it with --engine relay`,
    );
  if (code === CLOSE.replaced)
    return new TrialgateError('bad_input', `another worker has connected as ${id}: give each its own --id`);
  if (code === CLOSE.badHello && reason.startsWith('the worker_hello'))
    return new TrialgateError('bad_input', `the gateway refuses this worker: ${reason}`);
  return null;
}
