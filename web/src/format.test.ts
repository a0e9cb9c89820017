import { expect, test } from 'vitest';
import { exactDuration } from './format.ts';

test('an exact duration has two units from two minutes on', () => {
  expect([75, 119.6, 150, 3_661, 7_199.7, 9_000, 86_400].map(exactDuration)).toEqual([
    '75 s',
    '2 min',
    '2 min 30 s',
    '61 min 1 s',
    '2 h',
    '2 h 30 min',
    '24 h',
  ]);
});
