import { expect, test } from 'vitest';
import { decodeMessage, encodeAck, encodeFrame, type Frame } from './frames.ts';
import { Link } from './link.ts';

const bytes = new TextEncoder().encode('{"ids":[1,2]}');
const FRAMES: Frame[] = [
  { kind: 'request', exchange: 1, head: { method: 'POST', path: '/v1/x', hasBody: true, isQuestion: false }, bytes },
  { kind: 'reply', exchange: 2 ** 40 + 3, head: { status: 200, contentType: 'text/event-stream' } },
  { kind: 'chunk', exchange: 2, bytes },
  { kind: 'end', exchange: 2 },
  { kind: 'failed', exchange: 2, head: { message: 'no 🦀' } },
  { kind: 'cancel', exchange: 2 },
  { kind: 'credit', exchange: 2, head: { bytes: 7 } },
  { kind: 'changed', exchange: 0 },
  { kind: 'leaving', exchange: 0 },
];

test.each(FRAMES)('a frame $kind arrives as it was sent', (frame) => {
  const number = 2 ** 41 + 5;
  expect(decodeMessage(encodeFrame(number, frame))).toEqual({ number, frame });
});

test('an acknowledgement arrives as it was sent', () => {
  expect(decodeMessage(encodeAck(12))).toEqual({ acked: 12 });
});

test.each([
  ['too short', new Uint8Array(5)],
  ['of an unknown kind', new Uint8Array(17).fill(99)],
  ['with a head that is longer than the frame', encodeFrame(1, { kind: 'end', exchange: 1 }).with(16, 9)],
  [
    'with a head that is not JSON',
    encodeFrame(1, { kind: 'reply', exchange: 1, head: { status: 200, contentType: '' } }).with(17, 0),
  ],
  [
    'with a status that there is not',
    encodeFrame(1, { kind: 'reply', exchange: 1, head: { status: 42, contentType: '' } }),
  ],
])('a message %s is refused', (_, message) => {
  expect(() => decodeMessage(message)).toThrow();
});

/** Two ends, between which messages are lost when the wire is cut. */
function pair() {
  const got: { a: number[]; b: number[] } = { a: [], b: [] };
  const numberOf = (frame: Frame) => frame.exchange;
  const a = new Link((frame) => got.a.push(numberOf(frame)));
  const b = new Link((frame) => got.b.push(numberOf(frame)));
  let wire = { isCut: true, toA: [] as Uint8Array<ArrayBuffer>[], toB: [] as Uint8Array<ArrayBuffer>[] };
  const connect = () => {
    const own = { isCut: false, toA: [] as Uint8Array<ArrayBuffer>[], toB: [] as Uint8Array<ArrayBuffer>[] };
    wire = own;
    const [receivedA, receivedB] = [a.received, b.received];
    a.attach({ send: (message) => own.toB.push(message) }, receivedB);
    b.attach({ send: (message) => own.toA.push(message) }, receivedA);
  };
  return {
    a,
    b,
    got,
    connect,
    /** Brings at most `most` messages over in each direction. */
    bring: (most = Infinity) => {
      for (const message of wire.toB.splice(0, most)) b.receive(message);
      for (const message of wire.toA.splice(0, most)) a.receive(message);
    },
    cut: () => {
      wire.toA.length = wire.toB.length = 0;
      a.detach();
      b.detach();
    },
  };
}

const upTo = (count: number) => Array.from({ length: count }, (_, i) => i + 1);

test('over 200 cuts each frame arrives once and in order, in both directions', () => {
  const ends = pair();
  let sent = 0;
  for (let cuts = 0; cuts < 200; cuts++) {
    for (let i = 0; i < 7; i++) {
      sent += 1;
      ends.a.send({ kind: 'end', exchange: sent });
      ends.b.send({ kind: 'end', exchange: sent });
      if (i === 2) ends.connect();
      ends.bring((cuts + i) % 4);
    }
    ends.cut();
  }
  ends.connect();
  ends.bring();
  ends.bring();
  expect(ends.got.b).toEqual(upTo(sent));
  expect(ends.got.a).toEqual(upTo(sent));
});

test('frames that the other end has acknowledged are not kept, and an end that then says that it has fewer is refused', () => {
  const ends = pair();
  ends.connect();
  for (let i = 1; i <= 1_000; i++) ends.a.send({ kind: 'end', exchange: i });
  ends.bring();
  ends.bring();
  ends.a.detach();
  const again: number[] = [];
  const outlet = { send: (message: Uint8Array) => void again.push(message.byteLength) };
  expect(() => ends.a.attach(outlet, 0)).toThrow('frame 1 is not here');
  ends.a.attach(outlet, 990);
  expect(again).toHaveLength(10);
});

test('an end with the numbers of an earlier process continues after the last frames of that process', () => {
  const got: number[] = [];
  const before = pair();
  before.connect();
  before.a.send({ kind: 'end', exchange: 1 });
  before.b.send({ kind: 'end', exchange: 2 });
  before.bring();
  const after = new Link((frame) => got.push(frame.exchange), before.a.numbers);
  after.attach({ send: (message) => before.b.receive(message) }, before.b.received);
  before.b.detach();
  before.b.attach({ send: (message) => after.receive(message) }, before.a.received);
  after.send({ kind: 'end', exchange: 3 });
  before.b.send({ kind: 'end', exchange: 4 });
  expect([before.got.b, got]).toEqual([[1, 3], [4]]);
});

test('a frame that is missing ends the session', () => {
  const link = new Link(() => {});
  expect(() => link.receive(encodeFrame(2, { kind: 'end', exchange: 1 }))).toThrow('frame 1 is missing');
});
