import { Pool, type Dispatcher } from 'undici';
import type { EngineConnection, EngineReply, EngineRequest } from '../engines/connection.ts';

const CONNECT_MS = 10_000;
/**
 * vLLM's server closes a connection that is idle for 5 s, and a request sent at that moment is lost. This process may be late by seconds,
 * so it closes earlier.
 */
const KEPT_MS = 2_000;
const MAX_QUESTIONS = 4;
/** The unread bytes of one reply that are held in memory. */
const MAX_UNREAD = 256 * 1024;
/** No model's reply is this long. The limit protects our memory from an engine that does not stop writing. */
const MAX_REPLY = 256 * 2 ** 20;

/** Connects to an engine at `http://host:port` or `unix:/path/to.sock` over undici. */
export class UndiciConnection implements EngineConnection {
  readonly url: string;
  epoch = 0;
  onChange: (() => void) | null = null;
  readonly #maxReply: number;
  readonly #calls: Pool;
  readonly #questions: Pool;

  constructor(url: string, maxReply = MAX_REPLY) {
    this.url = url;
    this.#maxReply = maxReply;
    this.#calls = openPool(url, null);
    this.#questions = openPool(url, MAX_QUESTIONS);
    const change = () => {
      this.epoch += 1;
      this.onChange?.();
    };
    this.#calls.on('connect', change);
    this.#calls.on('disconnect', change);
  }

  send(request: EngineRequest): Promise<EngineReply> {
    return new Exchange(request, this.#maxReply).over(this.#calls);
  }

  ask(request: EngineRequest): Promise<EngineReply> {
    return new Exchange(request, this.#maxReply).over(this.#questions);
  }

  async close(): Promise<void> {
    await Promise.all([this.#calls.destroy(), this.#questions.destroy()]);
  }
}

function openPool(url: string, connections: number | null): Pool {
  const socketPath = url.startsWith('unix:') ? url.slice('unix:'.length) : undefined;
  // The call itself watches for silence. undici would end it after 300 s.
  return new Pool(socketPath === undefined ? new URL(url).origin : 'http://engine', {
    connections,
    pipelining: 1,
    keepAliveTimeout: KEPT_MS,
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { timeout: CONNECT_MS, socketPath },
  });
}

const END: IteratorResult<Uint8Array, undefined> = { done: true, value: undefined };

/**
 * One request and its reply, on undici's own callbacks, because the streams of `pool.request` cost more than the rest of a call. Parts that
 * came before they are asked for are returned as one.
 */
class Exchange implements Dispatcher.DispatchHandler, AsyncIterableIterator<Uint8Array> {
  readonly #request: EngineRequest;
  readonly #head = Promise.withResolvers<EngineReply>();
  #controller: Dispatcher.DispatchController | null = null;
  #unread: Buffer[] = [];
  #size = 0;
  #left: number;
  #isOver = false;
  #error: unknown = null;
  #reader: PromiseWithResolvers<void> | null = null;

  constructor(request: EngineRequest, maxReply: number) {
    this.#request = request;
    this.#left = maxReply;
  }

  over(pool: Pool): Promise<EngineReply> {
    const { method, path, body, signal } = this.#request;
    if (signal.aborted) return Promise.reject(signal.reason);
    signal.addEventListener('abort', this.#abort);
    pool.dispatch(
      { method, path, body, headers: body === undefined ? {} : { 'content-type': 'application/json' } },
      this,
    );
    return this.#head.promise;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#request.signal.aborted) this.#abort();
  }

  onResponseStart(
    _: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (status < 200) return;
    const type = headers['content-type'];
    this.#head.resolve({ status, contentType: (Array.isArray(type) ? type[0] : type) ?? '', body: this });
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#left -= chunk.length;
    if (this.#left < 0) return controller.abort(new Error('the reply is too long'));
    this.#unread.push(chunk);
    this.#size += chunk.length;
    if (this.#size > MAX_UNREAD) controller.pause();
    this.#wake();
  }

  onResponseEnd(): void {
    this.#finish();
    this.#wake();
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.#finish(this.#request.signal.aborted ? this.#request.signal.reason : error);
    this.#head.reject(this.#error);
    this.#wake();
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#size === 0 && !this.#isOver) {
      this.#reader = Promise.withResolvers();
      await this.#reader.promise;
    }
    if (this.#size > 0) return { done: false, value: this.#take() };
    if (this.#error !== null) throw this.#error;
    return END;
  }

  #take(): Buffer {
    const [first, ...more] = this.#unread;
    const value = first && more.length === 0 ? first : Buffer.concat(this.#unread, this.#size);
    const isPaused = this.#size > MAX_UNREAD;
    this.#unread = [];
    this.#size = 0;
    // More parts may come before `resume` returns.
    if (isPaused) this.#controller?.resume();
    return value;
  }

  /** Wakes the reader in a microtask, which runs after everything that one read of the socket brought. */
  #wake(): void {
    this.#reader?.resolve();
    this.#reader = null;
  }

  /** Stops the exchange: nobody wants the rest. */
  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (!this.#isOver) this.#controller?.abort(new Error('the reply was left unread'));
    return END;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #finish(error: unknown = null): void {
    this.#isOver = true;
    this.#error = error;
    this.#request.signal.removeEventListener('abort', this.#abort);
  }

  readonly #abort = (): void => {
    const { reason } = this.#request.signal;
    this.#controller?.abort(reason instanceof Error ? reason : new Error('aborted', { cause: reason }));
    this.#head.reject(reason);
  };
}
