import { decodeMessage, encodeAck, encodeFrame, type Frame } from './frames.ts';

/** Received frames are acknowledged after so many, or so many bytes. The other side keeps what is not acknowledged. */
const ACK_FRAMES = 64;
const ACK_BYTES = 64 * 1024;

export type Outlet = { send: (message: Uint8Array<ArrayBuffer>) => void };

/** The numbers of the last frames that were sent and received. */
export type FrameNumbers = { sent: number; received: number };
export const NO_FRAMES: FrameNumbers = { sent: 0, received: 0 };

/**
 * One end of a session. It passes each frame exactly once and in order, over as many sockets as it takes: frames are numbered, kept until
 * the other end has them, and sent again on the next socket.
 */
export class Link {
  readonly #onFrame: (frame: Frame) => void;
  readonly #unacked = new Map<number, Uint8Array<ArrayBuffer>>();
  #outlet: Outlet | null = null;
  #sent = 0;
  #received = 0;
  #unackedFrames = 0;
  #unackedBytes = 0;

  /** The numbers are those of an earlier process, none of whose frames is under way. */
  constructor(onFrame: (frame: Frame) => void, { sent, received } = NO_FRAMES) {
    this.#onFrame = onFrame;
    this.#sent = sent;
    this.#received = received;
  }

  get numbers(): FrameNumbers {
    return { sent: this.#sent, received: this.#received };
  }

  /** The number of the last frame that was received. */
  get received(): number {
    return this.#received;
  }

  get isAttached(): boolean {
    return this.#outlet !== null;
  }

  /** Continues over a socket, and first sends the frames that the other end has not received. Throws when these are not here any more. */
  attach(outlet: Outlet, receivedThere: number): void {
    this.#forget(receivedThere);
    if (receivedThere + this.#unacked.size !== this.#sent) throw new Error(`frame ${receivedThere + 1} is not here`);
    this.#outlet = outlet;
    for (const message of this.#unacked.values()) outlet.send(message);
  }

  detach(): void {
    this.#outlet = null;
  }

  send(frame: Frame): void {
    const number = ++this.#sent;
    const message = encodeFrame(number, frame);
    this.#unacked.set(number, message);
    this.#outlet?.send(message);
  }

  /** Takes a message from the socket. Throws when it cannot be part of this session. */
  receive(bytes: Uint8Array): void {
    const message = decodeMessage(bytes);
    if ('acked' in message) return this.#forget(message.acked);
    // A socket that was cut may have brought it already.
    if (message.number <= this.#received) return;
    if (message.number !== this.#received + 1) throw new Error(`frame ${this.#received + 1} is missing`);
    this.#received = message.number;
    this.#unackedFrames += 1;
    this.#unackedBytes += bytes.byteLength;
    if (this.#unackedFrames >= ACK_FRAMES || this.#unackedBytes >= ACK_BYTES) {
      this.#unackedFrames = this.#unackedBytes = 0;
      this.#outlet?.send(encodeAck(this.#received));
    }
    this.#onFrame(message.frame);
  }

  #forget(upTo: number): void {
    if (upTo > this.#sent) throw new Error('the other end acknowledges what was never sent');
    for (const number of this.#unacked.keys()) {
      if (number > upTo) break;
      this.#unacked.delete(number);
    }
  }
}
