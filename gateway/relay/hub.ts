import type { z } from 'zod';
import type { Log } from '../../core/log.ts';
import { relayWorkerOf } from '../../core/engine-url.ts';
import { isObject, parseJson } from '../../core/json.ts';
import type { EngineConnection } from '../engines/connection.ts';
import { openai } from '../engines/openai/openai.ts';
import { CLOSE, hello, OWN_FRAMES, PING, PONG, relayUrl, type HelloAck } from './hello.ts';
import { RelayConnection } from './relay-connection.ts';
import { NO_FRAMES, type FrameNumbers } from './link.ts';
import { OwnSession, type WorkerSession } from './session.ts';
import { VerlSession } from './verl-session.ts';

/** The part of a worker without calls under way with which another process continues its session. */
export type KeptWorker = { lease: Lease; numbers: FrameNumbers | null };

export type WorkerSocket = {
  send: (message: string | Uint8Array<ArrayBuffer>) => void;
  close: (code: number, reason: string) => void;
  /** Keeps this for `restore`, if the socket can outlive the gateway's process. `numbers` are null for a worker that speaks only verl's frames. */
  keep?: (worker: KeptWorker) => void;
};

/** The events of a worker's socket. A close is `clean` when the worker itself closed it. */
export type SocketEvents = {
  onMessage: (message: string | Uint8Array) => void;
  onClose: (clean: boolean) => void;
};

/** A worker of this gateway. `session` names its process. */
export type Lease = { id: string; url: string; session: string; epoch: number };

type Options = {
  /** Gives the worker to this gateway before it is greeted, and returns the epoch of its lease. Rejects when the worker cannot be taken now. */
  claim: (worker: Omit<Lease, 'epoch'>) => Promise<number>;
  /** Is called when a worker has connected. */
  onJoin: () => void;
  /** Is called when a worker was given up. */
  onLeave: (lease: Lease) => void;
  log: Log;
  /** The time for which calls under way wait for a worker whose connection was cut. */
  graceMs?: number;
  helloMs?: number;
};

type Worker = {
  id: string;
  url: string;
  lease: Lease;
  session: WorkerSession;
  /** Null while its connection is cut. */
  socket: WorkerSocket | null;
  grace: ReturnType<typeof setTimeout> | null;
};

const GRACE_MS = 60_000;
const HELLO_MS = 10_000;
/** Messages that a worker may send before it is greeted. */
const MAX_EARLY = 16;
/** The code of a WebSocket's close that means: try again later. */
const TRY_AGAIN = 1013;

/** The workers that have dialled in, each of which is one replica. */
export class RelayHub {
  readonly #options: Options;
  readonly #connections = new Map<string, RelayConnection>();
  readonly #workers = new Map<string, Worker>();
  /** The latest admission of a worker of this name. */
  readonly #admissions = new Map<string, Promise<unknown>>();

  constructor(options: Options) {
    this.#options = options;
  }

  connection(url: string): EngineConnection {
    return this.#connection(url);
  }

  /** True for a worker that is connected, or cut for less than the grace time. */
  knows(url: string): boolean {
    return this.#workers.get(relayWorkerOf(url))?.url === url;
  }

  /** The number of workers whose connection stands. */
  get connected(): number {
    return [...this.#workers.values()].filter(({ session }) => session.isConnected).length;
  }

  get urls(): string[] {
    return [...this.#workers.values()].map(({ url }) => url);
  }

  get workers(): { worker_id: string; engine: string; frames: string; connected: boolean }[] {
    return [...this.#workers.values()].map(({ id, url, session }) => ({
      worker_id: id,
      engine: url,
      frames: session.frames,
      connected: session.isConnected,
    }));
  }

  get leases(): Lease[] {
    return [...this.#workers.values()].map(({ lease }) => lease);
  }

  /** Returns the connection to a worker by its id; null when it is not there, or under another lease than the one of `epoch`. */
  worker(id: string, epoch: number | null = null): EngineConnection | null {
    const worker = this.#workers.get(id);
    return worker && (epoch === null || worker.lease.epoch === epoch) ? this.#connection(worker.url) : null;
  }

  /** Gives a worker up because another one has connected under its name to another gateway. */
  replace(id: string): void {
    const worker = this.#workers.get(id);
    if (worker) this.#replace(worker);
  }

  /** Gives a worker up whose lease another gateway has taken. */
  lose({ id, epoch }: Lease): void {
    const worker = this.#workers.get(id);
    if (worker?.lease.epoch !== epoch) return;
    const socket = this.#drop(worker, new Error('it has connected to another gateway'));
    socket?.close(1001, 'another gateway has this worker');
  }

  /** Takes a socket that was just opened by someone who may be a worker. */
  accept(socket: WorkerSocket): SocketEvents {
    let worker: Worker | null = null;
    let early: (string | Uint8Array)[] | null = null;
    let isClosed = false;
    const timer = setTimeout(
      () => socket.close(CLOSE.badHello, 'no worker_hello came'),
      this.#options.helloMs ?? HELLO_MS,
    );
    const onMessage = (message: string | Uint8Array) => {
      if (worker) return this.#take(worker, socket, message);
      if (early) {
        early.push(message);
        if (early.length > MAX_EARLY) socket.close(CLOSE.badFrame, 'too many frames before the worker_hello_ack');
        return;
      }
      clearTimeout(timer);
      const said = readHello(socket, message);
      if (!said) return;
      worker = this.#resume(socket, said);
      if (worker) return;
      early = [];
      void admit(said);
    };
    const admit = async (said: Said) => {
      worker = await this.#admit(socket, said, () => isClosed);
      const waiting = early ?? [];
      early = null;
      if (worker) waiting.forEach(onMessage);
    };
    return {
      onMessage,
      onClose: (clean) => {
        isClosed = true;
        clearTimeout(timer);
        if (worker) this.#lose(worker, socket, clean);
      },
    };
  }

  /** Takes a socket over from an earlier process of this gateway, which has kept its worker. */
  restore(socket: WorkerSocket, { lease, numbers }: KeptWorker): SocketEvents {
    const worker = this.#add(socket, lease, numbers);
    if (worker.session instanceof OwnSession) worker.session.link.attach(socket, numbers?.sent ?? 0);
    this.#connection(worker.url).use(worker.session);
    return {
      onMessage: (message) => this.#take(worker, socket, message),
      onClose: (clean) => this.#lose(worker, socket, clean),
    };
  }

  /** Ends all sessions: the gateway stops. The workers try again until another one is there. */
  close(): void {
    for (const worker of [...this.#workers.values()])
      this.#drop(worker, new Error('the gateway is stopping'))?.close(1001, 'the gateway is stopping');
  }

  /** Continues the session of a worker's process over a new socket. Returns null when it is not there. */
  #resume(socket: WorkerSocket, said: Said): Worker | null {
    const { worker_id: id, session: name, received } = said;
    const worker = this.#workers.get(id);
    const session = worker?.session;
    if (!worker || !isOwn(said) || !(session instanceof OwnSession) || session.name !== name) return null;
    // The old socket may still look alive.
    this.#detach(worker)?.close(1001, 'the worker has a newer connection');
    worker.socket = socket;
    acknowledge(socket, id, { protocol: OWN_FRAMES, resumed: true, received: session.link.received });
    this.#attach(worker, session, socket, received);
    return worker;
  }

  /** Takes a worker's process. Processes of the same name are taken one after the other. Returns null when it has gone, or cannot be taken now. */
  async #admit(socket: WorkerSocket, said: Said, isClosed: () => boolean): Promise<Worker | null> {
    const { worker_id: id, session: name = crypto.randomUUID(), engine } = said;
    const isOurs = isOwn(said);
    const claim = { id, url: relayUrl(id, isOurs ? engine : openai.name), session: name };
    const admission = (this.#admissions.get(id) ?? Promise.resolve()).then(() => this.#options.claim(claim));
    const settled = admission.catch(() => {});
    this.#admissions.set(id, settled);
    try {
      const lease = { ...claim, epoch: await admission };
      if (!isClosed()) return this.#greet(socket, lease, isOurs);
      if (!this.#workers.has(id)) this.#options.onLeave(lease);
    } catch (error) {
      this.#options.log(`relay worker ${id} cannot be taken now: ${error instanceof Error ? error.message : error}`, {
        level: 'warning',
      });
      socket.close(TRY_AGAIN, 'the gateway cannot take this worker now');
    } finally {
      if (this.#admissions.get(id) === settled) this.#admissions.delete(id);
    }
    return null;
  }

  #greet(socket: WorkerSocket, lease: Lease, isOurs: boolean): Worker {
    const { id, url } = lease;
    const before = this.#workers.get(id);
    if (before) this.#replace(before);
    const worker = this.#add(socket, lease, isOurs ? NO_FRAMES : null);
    acknowledge(socket, id, isOurs ? { protocol: OWN_FRAMES, resumed: false, received: 0 } : {});
    if (worker.session instanceof OwnSession) this.#attach(worker, worker.session, socket, 0);
    this.#connection(url).use(worker.session);
    this.#options.onJoin();
    const note = isOurs ? '' : ": it speaks only verl's frames, so its calls are recorded, and none can be trained on";
    this.#options.log(`relay worker ${id} is connected as ${url}${note}`);
    return worker;
  }

  /** Adds a worker. `numbers` are those of its session's frames, and null for a worker that speaks only verl's frames. */
  #add(socket: WorkerSocket, lease: Lease, numbers: FrameNumbers | null): Worker {
    const { id, url, session: name } = lease;
    const connection = this.#connection(url);
    const keep = () =>
      worker.socket?.keep?.({ lease, numbers: session instanceof OwnSession ? session.link.numbers : null });
    const session: WorkerSession = numbers
      ? new OwnSession({ name, numbers, onChange: () => connection.changed(), onIdle: keep })
      : new VerlSession((text) => socket.send(text));
    const worker: Worker = { id, url, lease, session, socket, grace: null };
    this.#workers.set(id, worker);
    if (!numbers) keep();
    return worker;
  }

  #replace(worker: Worker): void {
    const socket = this.#drop(worker, new Error(`worker ${worker.id} was started again`));
    socket?.close(CLOSE.replaced, `another worker has connected as ${worker.id}`);
  }

  #attach(worker: Worker, session: OwnSession, socket: WorkerSocket, received: number): void {
    try {
      session.link.attach(socket, received);
    } catch (error) {
      this.#refuse(worker, socket, error);
    }
  }

  #take(worker: Worker, socket: WorkerSocket, message: string | Uint8Array): void {
    // Messages on an earlier socket of the worker are ignored.
    if (worker.socket !== socket) return;
    if (message === PING) return socket.send(PONG);
    try {
      worker.session.receive(message);
    } catch (error) {
      this.#refuse(worker, socket, error);
    }
  }

  /** Ends a session that has broken its protocol, because its next frames cannot be trusted. */
  #refuse(worker: Worker, socket: WorkerSocket, error: unknown): void {
    const why = error instanceof Error ? error.message : String(error);
    this.#options.log(
      `relay worker ${worker.url} sent what is not of its protocol (${why}): its connection is closed`,
      {
        level: 'warning',
      },
    );
    this.#drop(worker, new Error('its relay worker broke the protocol'));
    socket.close(CLOSE.badFrame, 'not a frame of this protocol');
  }

  #lose(worker: Worker, socket: WorkerSocket, clean: boolean): void {
    if (worker.socket !== socket) return;
    if (clean || !worker.session.outlivesSocket) {
      this.#drop(worker, new Error('its relay worker has disconnected'));
      return;
    }
    this.#detach(worker);
    const graceMs = this.#options.graceMs ?? GRACE_MS;
    this.#options.log(`relay worker ${worker.url} lost its connection: its calls wait ${graceMs / 1000} s for it`, {
      level: 'warning',
    });
    worker.grace = setTimeout(
      () => void this.#drop(worker, new Error(`its relay worker was away for ${graceMs / 1000} s`)),
      graceMs,
    );
  }

  /** Takes a worker's socket away from it, and returns that. */
  #detach(worker: Worker): WorkerSocket | null {
    const { socket } = worker;
    worker.socket = null;
    if (worker.grace !== null) clearTimeout(worker.grace);
    worker.grace = null;
    if (worker.session instanceof OwnSession) worker.session.link.detach();
    return socket;
  }

  /** Gives a worker up, and returns its socket. Its calls fail as those of an engine that went away. */
  #drop(worker: Worker, why: Error): WorkerSocket | null {
    const socket = this.#detach(worker);
    if (this.#workers.get(worker.id) === worker) this.#workers.delete(worker.id);
    this.#connection(worker.url).use(null);
    worker.session.end(why);
    this.#options.onLeave(worker.lease);
    this.#options.log(`relay worker ${worker.url} is gone: ${why.message}`, { level: 'warning' });
    return socket;
  }

  #connection(url: string): RelayConnection {
    const known = this.#connections.get(url);
    if (known) return known;
    const connection = new RelayConnection(url);
    this.#connections.set(url, connection);
    return connection;
  }
}

type Said = z.output<typeof hello>;

const isOwn = ({ protocols, session }: Said): boolean => protocols.includes(OWN_FRAMES) && session !== undefined;

/** Returns a worker's first message, or closes the socket and returns null. */
function readHello(socket: WorkerSocket, message: string | Uint8Array): Said | null {
  const said = typeof message === 'string' ? parseJson(message) : null;
  const greeting = hello.safeParse(said);
  if (greeting.success) return greeting.data;
  if (isObject(said) && said.type === 'worker_hello')
    socket.close(CLOSE.badHello, 'the worker_hello is invalid: worker_id has letters, digits, `.`, `_` and `-`');
  else socket.close(CLOSE.noHello, 'expected worker_hello');
  return null;
}

function acknowledge(socket: WorkerSocket, id: string, more: Partial<HelloAck>): void {
  const answer: HelloAck = { type: 'worker_hello_ack', worker_id: id, status: 'connected', ...more };
  socket.send(JSON.stringify(answer));
}
