import { expect, test } from 'vitest';
import { secondsOfTrial, trialsAtOnce } from './trials-at-once.ts';

// Measured on two cores without AVX-512 with the 135M model.
const SLOW = [
  { calls: 1, tokensPerSecond: 18 },
  { calls: 8, tokensPerSecond: 60 },
  { calls: 64, tokensPerSecond: 100 },
];

test.each([
  ['all, on a fast engine', SLOW.map((one) => ({ ...one, tokensPerSecond: one.tokensPerSecond * 50 })), 64],
  ['fewer, on a slow one', SLOW, 38],
  [
    'one, on an engine that is too slow for two',
    SLOW.map((one) => ({ ...one, tokensPerSecond: one.tokensPerSecond / 10 })),
    1,
  ],
  ['those that the last measurement allows, where more were not measured', SLOW.slice(0, 2), 28],
])('the trials at once of which each ends in half of its time are %s', (_, speed, expected) => {
  expect(trialsAtOnce(speed, { tokens: 128, seconds: 120 }, 64)).toBe(expected);
});

test('a trial takes its tokens over the speed of its share of the engines, between measurements and beyond them', () => {
  expect(secondsOfTrial(SLOW, 1, { tokens: 36 })).toBe(2);
  expect(secondsOfTrial(SLOW, 8, { tokens: 60 })).toBe(8);
  expect(secondsOfTrial(SLOW, 36, { tokens: 80 })).toBe(36);
  expect(secondsOfTrial(SLOW, 128, { tokens: 100 })).toBe(128);
});
