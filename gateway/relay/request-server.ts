import { jsonReply, type EngineConnection, type EngineReply } from '../engines/connection.ts';
import { isPassedOn } from './relayed-routes.ts';
import type { Frame, RequestHead } from './frames.ts';
import { Link } from './link.ts';
import { WINDOW_BYTES } from './relayed-reply.ts';

type Running = { abort: AbortController; credit: number; wake: (() => void) | null };

/** The worker's end of a session: sends each request of the gateway to the engine, and the reply back as far as the gateway reads it. */
export class RequestServer {
  readonly link: Link;
  readonly #engine: EngineConnection;
  readonly #running = new Map<number, Running>();
  #served = 0;
  #idle: PromiseWithResolvers<void> | null = null;

  constructor(engine: EngineConnection) {
    this.#engine = engine;
    this.link = new Link((frame) => this.#on(frame));
    // The gateway checks an engine's weights again when another process may answer.
    engine.onChange = () => this.link.send({ kind: 'changed', exchange: 0 });
  }

  get inFlight(): number {
    return this.#running.size;
  }

  get served(): number {
    return this.#served;
  }

  /** Resolves when no request is under way. */
  idle(): Promise<void> {
    if (this.#running.size === 0) return Promise.resolve();
    this.#idle ??= Promise.withResolvers();
    return this.#idle.promise;
  }

  /** Stops everything that is under way: the gateway has given it up. */
  abort(why: Error): void {
    for (const { abort } of this.#running.values()) abort.abort(why);
    this.#running.clear();
    this.#engine.onChange = null;
  }

  #on(frame: Frame): void {
    const running = this.#running.get(frame.exchange);
    switch (frame.kind) {
      case 'request':
        return void this.#serve(frame.exchange, frame.head, frame.bytes);
      case 'cancel':
        return running?.abort.abort(new Error('the gateway cancelled the request'));
      case 'credit':
        if (!running) return;
        running.credit += frame.head.bytes;
        running.wake?.();
    }
  }

  async #serve(exchange: number, head: RequestHead, bytes: Uint8Array): Promise<void> {
    const running: Running = { abort: new AbortController(), credit: WINDOW_BYTES, wake: null };
    const { signal } = running.abort;
    signal.addEventListener('abort', () => running.wake?.());
    this.#running.set(exchange, running);
    try {
      const reply = await this.#ask(head, new TextDecoder().decode(bytes), signal);
      const { status, contentType } = reply;
      this.link.send({ kind: 'reply', exchange, head: { status, contentType } });
      for await (const part of reply.body) await this.#pass(exchange, part, running);
      this.link.send({ kind: 'end', exchange });
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (!signal.aborted) this.link.send({ kind: 'failed', exchange, head: { message } });
    } finally {
      this.#served += 1;
      this.#running.delete(exchange);
      if (this.#running.size === 0) {
        this.#idle?.resolve();
        this.#idle = null;
      }
    }
  }

  async #ask(
    { method, path, hasBody, isQuestion }: RequestHead,
    text: string,
    signal: AbortSignal,
  ): Promise<EngineReply> {
    if (!isPassedOn(this.#engine.url, method, path, text)) return refusal(method, path);
    const request = { method, path, ...(hasBody ? { body: text } : {}), signal };
    return isQuestion ? this.#engine.ask(request) : this.#engine.send(request);
  }

  /** Sends a part of a reply, in pieces if the gateway has no room for all of it. */
  async #pass(exchange: number, part: Uint8Array, running: Running): Promise<void> {
    for (let at = 0; at < part.byteLength;) {
      running.abort.signal.throwIfAborted();
      if (running.credit === 0) {
        const { promise, resolve } = Promise.withResolvers<void>();
        running.wake = resolve;
        await promise;
        running.wake = null;
        continue;
      }
      const bytes = part.subarray(at, at + running.credit);
      running.credit -= bytes.byteLength;
      at += bytes.byteLength;
      this.link.send({ kind: 'chunk', exchange, bytes });
    }
  }
}

function refusal(method: string, path: string): EngineReply {
  const message = `this relay worker passes on no ${method} ${path}: only what the gateway and the trainer ask of an engine`;
  return jsonReply(403, { error: { message, type: 'forbidden', code: 'not_relayed' } });
}
