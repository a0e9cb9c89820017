import { expect, test } from 'vitest';
import { secondsOf } from './duration.ts';

test('a duration is read as another one', () => {
  expect(['90s', '10m', '1h30m', '2d', '0.5h'].map(secondsOf)).toEqual([90, 600, 5400, 172_800, 1800]);
});

test.each(['', '10', 'm', '10 m', '-5m', '0s', '1.2.3m', 'ten minutes'])('%j is accepted as a duration', (text) => {
  expect(() => secondsOf(text)).toThrow('expected a duration such as 90s, 10m or 1h30m');
});
