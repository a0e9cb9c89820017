import { expect, test } from 'vitest';
import { OpenBodies } from './open-bodies.ts';

const refusal = (status: number) => expect.objectContaining({ status, code: 'too_many_bytes_in_flight', headers: { 'retry-after': '2' }, message: expect.stringContaining('max_body_bytes_in_flight') });

test('open bodies of all trials stay within the bound, and what left is free', () => {
  const bodies = new OpenBodies();
  const [a, b, c, d, e] = ['a', 'b', 'c', 'd', 'e'].map((trial) => bodies.enter(trial, 100));
  for (const each of [a, b, c, d]) each?.hold(25);
  expect(() => e?.hold(1)).toThrow(refusal(503));
  a?.leave();
  a?.leave();
  e?.hold(25);
  expect(() => bodies.enter('f', 100).hold(1)).toThrow(refusal(503));
});

test('one trial holds a quarter, so that others are read; a single body is let in however large', () => {
  const bodies = new OpenBodies();
  bodies.enter('a', 100).hold(25);
  expect(() => bodies.enter('a', 100).hold(1)).toThrow(refusal(429));
  const large = bodies.enter('b', 100);
  large.hold(40);
  large.hold(10);
  expect(() => bodies.enter('b', 100).hold(1)).toThrow(refusal(429));
  bodies.enter('c', 100).hold(25);
  expect(() => large.hold(1)).toThrow(refusal(503));
  new OpenBodies().enter('d', 100).hold(1000);
});
