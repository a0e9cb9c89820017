import type { EngineReply, EngineRequest } from '../engines/connection.ts';
import type { Frame } from './frames.ts';
import { Link, type FrameNumbers } from './link.ts';
import { RelayedReply } from './relayed-reply.ts';

/** The way of requests to a worker, and of its replies. */
export interface WorkerSession {
  readonly frames: 'own' | 'verl';
  /** True when calls under way survive a cut connection. */
  readonly outlivesSocket: boolean;
  readonly isConnected: boolean;
  /** Rejects when no reply began. */
  exchange: (request: EngineRequest, isQuestion: boolean) => Promise<EngineReply>;
  /** Takes a message from the socket. Throws when it is none of this protocol. */
  receive: (message: string | Uint8Array) => void;
  /** Fails the requests under way. */
  end: (why: Error) => void;
}

type Options = {
  /** Names the worker's process. */
  name: string;
  /** The numbers of the session's frames in an earlier process of the gateway. */
  numbers: FrameNumbers;
  /** Is called when another process of the engine may answer from now on. */
  onChange: () => void;
  /** Is called after each frame while no exchange is under way. */
  onIdle: () => void;
};

type Exchange = { head: PromiseWithResolvers<EngineReply>; reply: RelayedReply; release: () => void };

const encoder = new TextEncoder();

/** The gateway's end of a session with one process of our own worker. It outlives its sockets. */
export class OwnSession implements WorkerSession {
  readonly frames = 'own';
  readonly outlivesSocket = true;
  readonly name: string;
  readonly link: Link;
  readonly #exchanges = new Map<number, Exchange>();
  readonly #options: Options;
  #last: number;
  #isLeaving = false;

  constructor(options: Options) {
    this.name = options.name;
    this.#options = options;
    // Each exchange has sent a frame, so no earlier one has a higher number.
    this.#last = options.numbers.sent;
    this.link = new Link((frame) => this.#on(frame), options.numbers);
  }

  get isConnected(): boolean {
    return this.link.isAttached;
  }

  exchange(request: EngineRequest, isQuestion: boolean): Promise<EngineReply> {
    const { method, path, body, signal } = request;
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#isLeaving && !isQuestion) return Promise.reject(new Error('the worker is stopping'));
    const id = ++this.#last;
    const cancel = () => {
      this.link.send({ kind: 'cancel', exchange: id });
      this.#release(id);
      this.#noteIdle();
    };
    const abort = () => {
      cancel();
      head.reject(signal.reason);
      reply.body.end(signal.reason);
    };
    const reply = new RelayedReply({
      cancel,
      credit: (bytes) => {
        this.link.send({ kind: 'credit', exchange: id, head: { bytes } });
        this.#noteIdle();
      },
    });
    const head = Promise.withResolvers<EngineReply>();
    this.#exchanges.set(id, { head, reply, release: () => signal.removeEventListener('abort', abort) });
    signal.addEventListener('abort', abort);
    this.link.send({
      kind: 'request',
      exchange: id,
      head: { method, path, hasBody: body !== undefined, isQuestion },
      bytes: encoder.encode(body ?? ''),
    });
    return head.promise;
  }

  receive(message: string | Uint8Array): void {
    if (typeof message === 'string') throw new Error('a frame of the other protocol');
    this.link.receive(message);
    this.#noteIdle();
  }

  end(why: Error): void {
    for (const [id, { head, reply }] of this.#exchanges) {
      this.#release(id);
      head.reject(why);
      reply.body.end(why);
    }
  }

  #on(frame: Frame): void {
    if (frame.kind === 'changed') return this.#options.onChange();
    if (frame.kind === 'leaving') {
      this.#isLeaving = true;
      return;
    }
    // A frame that comes after a cancellation belongs to no exchange.
    const exchange = this.#exchanges.get(frame.exchange);
    if (!exchange) return;
    const { head, reply } = exchange;
    const { body } = reply;
    switch (frame.kind) {
      case 'reply':
        return head.resolve({ status: frame.head.status, contentType: frame.head.contentType, body });
      case 'chunk':
        return reply.push(frame.bytes);
      case 'end':
        this.#release(frame.exchange);
        return body.end();
      case 'failed': {
        this.#release(frame.exchange);
        const error = new Error(frame.head.message);
        head.reject(error);
        return body.end(error);
      }
    }
  }

  #release(id: number): void {
    this.#exchanges.get(id)?.release();
    this.#exchanges.delete(id);
  }

  #noteIdle(): void {
    if (this.#exchanges.size === 0) this.#options.onIdle();
  }
}
