import { expect, test } from 'vitest';
import { OpenBodies } from './open-bodies.ts';

const refusal = (status: number) =>
  expect.objectContaining({
    status,
    code: 'too_many_bytes_in_flight',
    headers: { 'retry-after': '2' },
    message: expect.stringContaining('max_body_bytes_in_flight'),
  });
const LIMIT = { announced: 0, maxBytes: 100 };

test('the request bodies of all trials together stay within a limit of bytes, and a released body frees its bytes', () => {
  const bodies = new OpenBodies();
  const [a, b, c, d, e] = ['a', 'b', 'c', 'd', 'e'].map((trial) => bodies.enter(trial, LIMIT));
  for (const each of [a, b, c, d]) each?.hold(25);
  expect(() => e?.hold(1)).toThrow(refusal(503));
  a?.release();
  a?.release();
  e?.hold(25);
  expect(() => bodies.enter('f', LIMIT).hold(1)).toThrow(refusal(503));
});

test('the request bodies of one trial may hold a quarter of the bytes, and a trial’s only body is admitted whatever its size', () => {
  const bodies = new OpenBodies();
  bodies.enter('a', LIMIT).hold(25);
  expect(() => bodies.enter('a', LIMIT).hold(1)).toThrow(refusal(429));
  const large = bodies.enter('b', LIMIT);
  large.hold(40);
  large.hold(10);
  expect(() => bodies.enter('b', LIMIT).hold(1)).toThrow(refusal(429));
  bodies.enter('c', LIMIT).hold(25);
  expect(() => large.hold(1)).toThrow(refusal(503));
  new OpenBodies().enter('d', LIMIT).hold(1000);
});

test('a body’s declared length counts for its own trial at once, and for other trials only as far as it has arrived', () => {
  const bodies = new OpenBodies();
  const announced = { announced: 12, maxBytes: 100 };
  const [first, second] = [bodies.enter('a', announced), bodies.enter('a', announced)];
  expect(() => bodies.enter('a', announced)).toThrow(refusal(429));
  for (const each of [first, second]) each.hold(12);
  for (const trial of ['b', 'c', 'd', 'e']) bodies.enter(trial, { announced: 1000, maxBytes: 100 });
  bodies.enter('f', LIMIT).hold(25);
  first.release();
  bodies.enter('a', announced);
});
