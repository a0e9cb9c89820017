import { z } from 'zod';

/**
 * The frames of `trialgate.relay.v1`. Each is one binary message: its kind (1 byte), its number (6), the exchange that it belongs to (6),
 * the length of its head (4), the head as JSON, and the rest is its bytes. Frames with tokens have no head, so no JSON is read for them.
 */
export type Frame =
  | { kind: 'request'; exchange: number; head: RequestHead; bytes: Uint8Array }
  | { kind: 'reply'; exchange: number; head: ReplyHead }
  | { kind: 'chunk'; exchange: number; bytes: Uint8Array }
  | { kind: 'end'; exchange: number }
  | { kind: 'failed'; exchange: number; head: { message: string } }
  | { kind: 'cancel'; exchange: number }
  /** The reader took so many bytes of the reply's chunks. */
  | { kind: 'credit'; exchange: number; head: { bytes: number } }
  /** The worker's connection to its engine was made or lost. */
  | { kind: 'changed'; exchange: 0 }
  /** The worker takes no new calls. */
  | { kind: 'leaving'; exchange: 0 };

export type RequestHead = z.output<typeof HEADS.request>;
export type ReplyHead = z.output<typeof HEADS.reply>;

const KINDS = [
  'ack',
  'request',
  'reply',
  'chunk',
  'end',
  'failed',
  'cancel',
  'credit',
  'changed',
  'leaving',
] as const satisfies (Frame['kind'] | 'ack')[];

const HEADS = {
  request: z.object({
    method: z.enum(['GET', 'POST']),
    path: z.string(),
    hasBody: z.boolean(),
    /** True for a question about the engine, which must not wait behind calls. */
    isQuestion: z.boolean(),
  }),
  reply: z.object({ status: z.int().min(100).max(599), contentType: z.string() }),
  failed: z.object({ message: z.string() }),
  credit: z.object({ bytes: z.int().min(1) }),
};

const FIXED = 17;
const NOTHING = new Uint8Array();
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** A decoded message: a frame with its number, or the number of the last frame that arrived. */
export type Message = { number: number; frame: Frame } | { acked: number };

export function encodeFrame(number: number, frame: Frame): Uint8Array<ArrayBuffer> {
  const head = 'head' in frame ? encoder.encode(JSON.stringify(frame.head)) : NOTHING;
  return encode(frame.kind, number, frame.exchange, head, 'bytes' in frame ? frame.bytes : NOTHING);
}

export const encodeAck = (number: number): Uint8Array<ArrayBuffer> => encode('ack', number, 0, NOTHING, NOTHING);

/** Throws when the message is none of ours. */
export function decodeMessage(message: Uint8Array): Message {
  if (message.byteLength < FIXED) throw new Error('a frame is too short');
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  const kind = KINDS[view.getUint8(0)];
  const number = readUint48(view, 1);
  const exchange = readUint48(view, 7);
  const length = view.getUint32(13);
  if (kind === undefined || FIXED + length > message.byteLength) throw new Error('a frame has an unknown form');
  const bytes = message.subarray(FIXED + length);
  const head = (): unknown => JSON.parse(decoder.decode(message.subarray(FIXED, FIXED + length)));
  switch (kind) {
    case 'ack':
      return { acked: number };
    case 'request':
      return { number, frame: { kind, exchange, head: HEADS.request.parse(head()), bytes } };
    case 'reply':
      return { number, frame: { kind, exchange, head: HEADS.reply.parse(head()) } };
    case 'failed':
      return { number, frame: { kind, exchange, head: HEADS.failed.parse(head()) } };
    case 'credit':
      return { number, frame: { kind, exchange, head: HEADS.credit.parse(head()) } };
    case 'chunk':
      return { number, frame: { kind, exchange, bytes } };
    case 'changed':
    case 'leaving':
      return { number, frame: { kind, exchange: 0 } };
    default:
      return { number, frame: { kind, exchange } };
  }
}

function encode(
  kind: (typeof KINDS)[number],
  number: number,
  exchange: number,
  head: Uint8Array,
  bytes: Uint8Array,
): Uint8Array<ArrayBuffer> {
  const message = new Uint8Array(FIXED + head.byteLength + bytes.byteLength);
  const view = new DataView(message.buffer);
  view.setUint8(0, KINDS.indexOf(kind));
  writeUint48(view, 1, number);
  writeUint48(view, 7, exchange);
  view.setUint32(13, head.byteLength);
  message.set(head, FIXED);
  message.set(bytes, FIXED + head.byteLength);
  return message;
}

function writeUint48(view: DataView, at: number, value: number): void {
  view.setUint16(at, Math.floor(value / 2 ** 32));
  view.setUint32(at + 2, value % 2 ** 32);
}

const readUint48 = (view: DataView, at: number): number => view.getUint16(at) * 2 ** 32 + view.getUint32(at + 2);
