import { Pool, type Dispatcher } from 'undici';
import { listenerOf, pathBelow } from '../../../core/engine-url.ts';
import {
  MAX_REPLY_BYTES,
  type EngineConnection,
  type EngineReply,
  type EngineRequest,
} from '../../engines/connection.ts';
import { ReplyBody } from '../../engines/reply-body.ts';

const CONNECT_MS = 10_000;
/**
 * An engine's server closes a connection that is idle for 5 s, and a request sent at that moment is lost. This process may be late by seconds,
 * so it closes earlier.
 */
const KEPT_MS = 2_000;
const MAX_QUESTIONS = 4;
/** The unread bytes of one reply that are held in memory. */
const MAX_UNREAD = 256 * 1024;

/** Connects to an engine at `http://host:port` or `unix:/path/to.sock`, of any kind, over undici. */
export class UndiciConnection implements EngineConnection {
  readonly url: string;
  epoch = 0;
  onChange: (() => void) | null = null;
  readonly #maxReply: number;
  readonly #headers: Record<string, string>;
  readonly #base: string;
  readonly #calls: Pool;
  readonly #questions: Pool;

  /** `headers` go with every request. */
  constructor(url: string, maxReply = MAX_REPLY_BYTES, headers: Record<string, string> = {}) {
    this.url = url;
    this.#maxReply = maxReply;
    this.#headers = headers;
    this.#base = listenerOf(url).base;
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
    return this.#exchange(request).over(this.#calls);
  }

  ask(request: EngineRequest): Promise<EngineReply> {
    return this.#exchange(request).over(this.#questions);
  }

  #exchange(request: EngineRequest): HttpExchange {
    const path = pathBelow(this.#base, request.path);
    return new HttpExchange({ ...request, path }, this.#maxReply, this.#headers);
  }

  async close(): Promise<void> {
    await Promise.all([this.#calls.destroy(), this.#questions.destroy()]);
  }
}

function openPool(url: string, connections: number | null): Pool {
  const { origin, socketPath } = listenerOf(url);
  // The call itself watches for silence. undici would end it after 300 s.
  return new Pool(origin, {
    connections,
    pipelining: 1,
    keepAliveTimeout: KEPT_MS,
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { timeout: CONNECT_MS, socketPath },
  });
}

/** One request and its reply, on undici's own callbacks, because the streams of `pool.request` cost more than the rest of a call. */
class HttpExchange implements Dispatcher.DispatchHandler {
  readonly #request: EngineRequest;
  readonly #headers: Record<string, string>;
  readonly #head = Promise.withResolvers<EngineReply>();
  readonly #body: ReplyBody;
  #controller: Dispatcher.DispatchController | null = null;

  constructor(request: EngineRequest, maxReply: number, headers: Record<string, string>) {
    this.#request = request;
    this.#headers = headers;
    this.#body = new ReplyBody({
      maxBytes: maxReply,
      onTaken: (bytes) => void (bytes > MAX_UNREAD && this.#controller?.resume()),
      onUnwanted: () => this.#controller?.abort(new Error('the reply was left unread')),
    });
  }

  over(pool: Pool): Promise<EngineReply> {
    const { method, path, body, signal, headers: own } = this.#request;
    if (signal.aborted) return Promise.reject(signal.reason);
    signal.addEventListener('abort', this.#abort);
    const headers =
      body === undefined ? this.#headers : { ...this.#headers, ...own, 'content-type': 'application/json' };
    pool.dispatch({ method, path, body, headers }, this);
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
    this.#head.resolve({ status, contentType: (Array.isArray(type) ? type[0] : type) ?? '', body: this.#body });
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#body.push(chunk)) controller.abort(new Error('the reply is too long'));
    else if (this.#body.unread > MAX_UNREAD) controller.pause();
  }

  onResponseEnd(): void {
    this.#finish(null);
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    const why: unknown = this.#request.signal.aborted ? this.#request.signal.reason : error;
    this.#finish(why);
    this.#head.reject(why);
  }

  #finish(error: unknown): void {
    this.#body.end(error);
    this.#request.signal.removeEventListener('abort', this.#abort);
  }

  readonly #abort = (): void => {
    const { reason } = this.#request.signal;
    this.#controller?.abort(reason instanceof Error ? reason : new Error('aborted', { cause: reason }));
    this.#head.reject(reason);
  };
}
