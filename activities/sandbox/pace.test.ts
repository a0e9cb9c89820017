import { expect, test } from 'vitest';
import { Pace } from './pace.ts';

test('a worker’s first sandboxes start at once, later ones at the configured rate, and idle time allows another burst', () => {
  const pace = new Pace(10, 3);
  expect([0, 0, 0, 0, 0].map((now) => pace.delay(now))).toEqual([0, 0, 0, 100, 200]);
  expect(pace.delay(150)).toBe(150);
  expect([10_000, 10_000, 10_000, 10_000].map((now) => pace.delay(now))).toEqual([0, 0, 0, 100]);
});
