import { expect, test } from 'vitest';
import { FIRST_LOOK_MS, nextLook, type Look } from './next-look.ts';

/** Returns the pauses in seconds, including the first one. */
function pausesAfter(looks: Look[]): number[] {
  const pauses = [FIRST_LOOK_MS];
  for (const look of looks) pauses.push(nextLook(pauses.at(-1) ?? 0, look));
  return pauses.map((milliseconds) => milliseconds / 1000);
}

test('the interval doubles after each failed repair, up to 15 minutes', () => {
  expect(pausesAfter(Array.from({ length: 8 }, () => 'in vain'))).toEqual([10, 20, 40, 80, 160, 320, 640, 900, 900]);
});

test('a poll with nothing to repair between failed repairs keeps the longer interval', () => {
  expect(pausesAfter(['in vain', 'in vain', 'in vain', 'nothing', 'in vain'])).toEqual([10, 20, 40, 80, 80, 160]);
});

test('after a successful repair and with a whole pool the interval is a minute', () => {
  expect(pausesAfter(['in vain', 'in vain', 'in vain', 'in vain', 'mended', 'nothing'])).toEqual([10, 20, 40, 80, 160, 60, 60]);
  expect(pausesAfter(['nothing', 'nothing', 'nothing', 'nothing'])).toEqual([10, 20, 40, 60, 60]);
});
