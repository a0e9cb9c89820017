import { ReplyBody } from '../engines/reply-body.ts';
import { MAX_REPLY_BYTES } from '../engines/connection.ts';

/** The bytes of one reply that a worker may send before the gateway has read them. */
export const WINDOW_BYTES = 256 * 1024;

type Options = {
  /** Tells the worker that so many bytes were read. */
  credit: (bytes: number) => void;
  /** Tells the worker that nobody wants the rest. */
  cancel: () => void;
};

/** The body of a reply that comes in frames. */
export class RelayedReply {
  readonly body: ReplyBody;
  readonly #cancel: () => void;

  constructor({ credit, cancel }: Options) {
    let uncredited = 0;
    this.#cancel = cancel;
    this.body = new ReplyBody({
      maxBytes: MAX_REPLY_BYTES,
      onTaken: (bytes) => {
        uncredited += bytes;
        if (uncredited < WINDOW_BYTES / 4 || this.body.isOver) return;
        credit(uncredited);
        uncredited = 0;
      },
      onUnwanted: () => this.#stop(null),
    });
  }

  push(bytes: Uint8Array): void {
    if (!this.body.push(bytes)) this.#stop(new Error('the reply is too long'));
  }

  #stop(error: Error | null): void {
    this.#cancel();
    this.body.end(error);
  }
}
