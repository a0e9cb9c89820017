import { expect, test } from 'vitest';
import { secondsOf } from './duration.ts';

test('the command line takes durations in seconds, minutes, hours or days', () => {
  expect(['90s', '10m', '1h30m', '2d', '0.5h'].map(secondsOf)).toEqual([90, 600, 5400, 172_800, 1800]);
});

test.each(['', '10', 'm', '10 m', '-5m', '0s', '1.2.3m', 'ten minutes'])(
  'the command line refuses %j as a duration, with an example of one',
  (text) => {
    expect(() => secondsOf(text)).toThrow('expected a duration such as 90s, 10m or 1h30m');
  },
);
