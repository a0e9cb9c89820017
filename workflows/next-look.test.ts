import { expect, test } from 'vitest';
import { FIRST_LOOK_MS, nextLook, type Look } from './next-look.ts';

/** The pauses in seconds, the first one included. */
function pausesAfter(looks: Look[]): number[] {
  const pauses = [FIRST_LOOK_MS];
  for (const look of looks) pauses.push(nextLook(pauses.at(-1) ?? 0, look));
  return pauses.map((milliseconds) => milliseconds / 1000);
}

test('a replica that never confirms is given its weights every minute for the rest of the run', () => {
  expect(pausesAfter(Array.from({ length: 8 }, () => 'in vain'))).toEqual([10, 20, 40, 80, 160, 320, 640, 900, 900]);
});

test('one that crashes while it is loaded is loaded as often as before, because it is away at the look between', () => {
  expect(pausesAfter(['in vain', 'in vain', 'in vain', 'nothing', 'in vain'])).toEqual([10, 20, 40, 80, 80, 160]);
});

test('a pool that was mended is looked at as rarely as one that could not be, or a whole one ever more rarely', () => {
  expect(pausesAfter(['in vain', 'in vain', 'in vain', 'in vain', 'mended', 'nothing'])).toEqual([10, 20, 40, 80, 160, 60, 60]);
  expect(pausesAfter(['nothing', 'nothing', 'nothing', 'nothing'])).toEqual([10, 20, 40, 60, 60]);
});
