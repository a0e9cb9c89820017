import { randomBytes } from 'node:crypto';
import { request, type IncomingMessage, type OutgoingHttpHeaders, type ServerResponse } from 'node:http';
import { Worker } from 'node:worker_threads';
import type { Snapshot } from '../../calls/counters.ts';
import { Failure, shuttingDown } from '../../failure.ts';
import type { NodeGatewayOptions } from './start-gateway.ts';
import type { Log } from '../../../core/log.ts';
import { sleep } from '../../../core/sleep.ts';
import type { Order, Report } from './heavy-thread.ts';
import { isDelivered } from './is-delivered.ts';
import { passOn } from './pass-on.ts';
import { isMostlyUnread } from './unread-bodies.ts';

export type ThreadOptions = { options: Omit<NodeGatewayOptions, 'log' | 'heavyThread'>; token: string };

/** This header tells the thread that a request comes from this process's other thread. */
export const LANE_HEADER = 'x-trialgate-lane';
/** Above this limit the thread runs out of memory alone, without the process. */
const HEAP_MIB = 2048;
/** Headers that belong to one connection and not to the request. The gateway has already answered `expect`. */
const OF_CONNECTION = new Set([
  'connection',
  'keep-alive',
  'transfer-encoding',
  'upgrade',
  'expect',
  'proxy-connection',
  'te',
  'trailer',
  LANE_HEADER,
]);

const ANSWERS_WITHIN_MS = 1_000;

type Thread = { worker: Worker; port: Promise<number> };

/**
 * Answers heavy requests on a thread with its own event loop and heap. So parsing and hashing delay no other call, and running out of
 * memory ends no other call.
 */
export class HeavyLane {
  readonly #options: Omit<NodeGatewayOptions, 'log'>;
  readonly #log: Log;
  readonly #token = randomBytes(16).toString('hex');
  readonly #asked = new Map<number, (snapshot: Snapshot | null) => void>();
  #thread: Thread | null = null;
  #asks = 0;
  #last: Snapshot | null = null;
  #closing = false;
  #relayVia: string | null = null;

  constructor({ log = () => {}, ...options }: NodeGatewayOptions) {
    this.#options = options;
    this.#log = log;
  }

  /**
   * Passes a request to the thread and its reply back, byte by byte. `body` is the whole body if it was already read. A reply that comes
   * before most of the body is returned instead, because nobody reads the rest of the body then. Throws when the thread cannot be reached.
   */
  async handOver(
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    body: Uint8Array | null,
  ): Promise<Response | null> {
    if (this.#closing) throw shuttingDown();
    const thread = (this.#thread ??= this.#start());
    const port = await thread.port.catch((error: unknown) => {
      throw unavailable(error);
    });
    // The agent left while the thread started.
    if (outgoing.closed) return null;
    const id = `${this.#asks++}`;
    const length = body ? { 'content-length': body.byteLength } : {};
    const headers = { ...kept(incoming.rawHeaders, body !== null), ...length, [LANE_HEADER]: `${this.#token} ${id}` };
    const passed = Promise.withResolvers<Response | null>();
    // Each request gets a new connection, because the thread may close a kept one at the moment of its next use.
    const passing = request({
      agent: false,
      host: '127.0.0.1',
      port,
      method: incoming.method,
      path: incoming.url,
      headers,
      setHost: false,
    });
    const stop = body ? null : passOn(incoming, passing);
    passing.on('error', (error) => {
      stop?.();
      if (outgoing.headersSent) outgoing.socket?.destroySoon();
      else passed.reject(unavailable(error));
    });
    passing.on('response', (reply) => {
      if (isMostlyUnread(incoming)) {
        stop?.();
        return void whole(reply)
          .then(passed.resolve, (error: unknown) => passed.reject(unavailable(error)))
          .finally(() => passing.destroy());
      }
      outgoing.writeHead(reply.statusCode ?? 502, kept(reply.rawHeaders, false));
      reply.pipe(outgoing);
      // The part before the break is sent, and the end stays unwritten.
      reply.on('error', () => outgoing.socket?.destroySoon());
      // A refusal may come before the body is sent. Nobody reads the rest.
      reply.on('end', () => stop?.());
      passed.resolve(null);
    });
    void isDelivered(outgoing).then((isWhole) => this.#tell(thread, { delivered: id, isWhole }));
    outgoing.on('close', () => {
      passed.resolve(null);
      passing.destroy();
    });
    if (body) passing.end(body);
    return passed.promise;
  }

  /** Says where the thread reaches this one, which holds the sockets of the relay workers. */
  reachThrough(url: string): void {
    this.#relayVia = url;
  }

  /** Returns the thread's counts, or null without a thread. A busy thread may not answer at once, so its last counts are returned. */
  async snapshot(): Promise<Snapshot | null> {
    const thread = this.#thread;
    if (!thread) return null;
    const id = this.#asks++;
    const { promise, resolve } = Promise.withResolvers<Snapshot | null>();
    this.#asked.set(id, resolve);
    this.#tell(thread, { counters: id });
    return Promise.race([promise, sleep(ANSWERS_WITHIN_MS).then(() => this.#last)]);
  }

  /** Resolves when the thread has drained its calls, as the gateway's own drain does. */
  async close(): Promise<void> {
    this.#closing = true;
    const thread = this.#thread;
    if (!thread) return;
    await thread.port.catch(() => {});
    const exited = new Promise<void>((resolve) => void thread.worker.once('exit', () => resolve()));
    if (this.#thread !== thread) return;
    this.#tell(thread, { close: true });
    await exited;
  }

  #tell({ worker }: Thread, order: Order): void {
    worker.postMessage(order);
  }

  #start(): Thread {
    const { heavyThread = new URL('./heavy-thread-main.ts', import.meta.url), ...options } = this.#options;
    const relayVia = this.#relayVia;
    const given: ThreadOptions = {
      options: { ...options, ...(relayVia === null ? {} : { relayVia }) },
      token: this.#token,
    };
    const worker = new Worker(heavyThread, { workerData: given, resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB } });
    const { promise: port, resolve, reject } = Promise.withResolvers<number>();
    const thread = { worker, port };
    port.catch(() => {});
    worker.on('message', (report: Report) => {
      if ('port' in report) resolve(report.port);
      else if ('log' in report) this.#log(report.log, report.fields);
      else {
        this.#last = report.snapshot;
        this.#asked.get(report.counters)?.(report.snapshot);
        this.#asked.delete(report.counters);
      }
    });
    worker.on('error', (error) => {
      this.#log(`the thread for large requests ended: ${error.message}; the next large request starts it again`, {
        level: 'warning',
      });
      reject(error);
    });
    worker.on('exit', () => {
      reject(new Error('the thread for large requests has ended'));
      if (this.#thread === thread) this.#thread = null;
      this.#last = null;
      for (const answer of this.#asked.values()) answer(null);
      this.#asked.clear();
    });
    return thread;
  }
}

async function whole(reply: IncomingMessage): Promise<Response> {
  const headers = Object.entries(kept(reply.rawHeaders, false)).flatMap(([name, values]) =>
    [values].flat().map((value): [string, string] => [name, `${value}`]),
  );
  return new Response(Buffer.concat(await reply.toArray()), { status: reply.statusCode ?? 502, headers });
}

/** Returns the raw headers of a message that also apply to the next connection. Repeated headers stay repeated. */
function kept(raw: readonly string[], isNewBody: boolean): OutgoingHttpHeaders {
  const headers: Record<string, string[]> = {};
  for (let i = 0; i < raw.length; i += 2) {
    const name = (raw[i] ?? '').toLowerCase();
    const isOfBody = name === 'content-length' || name === 'content-encoding';
    if (!OF_CONNECTION.has(name) && !(isNewBody && isOfBody)) (headers[name] ??= []).push(raw[i + 1] ?? '');
  }
  return Object.fromEntries(
    Object.entries(headers).map(([name, values]) => [name, values.length === 1 ? values[0] : values]),
  );
}

const unavailable = (cause: unknown) =>
  new Failure(503, 'large_requests_unavailable', 'the thread for large requests has ended: try again', {
    headers: { 'retry-after': '2' },
    cause,
  });
