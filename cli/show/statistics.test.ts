import { expect, test } from 'vitest';
import { statisticsOf, tally } from './statistics.ts';
import { table } from './table.ts';

test('`show` has null, not a mean of 0, as the statistics of no rewards', () => {
  expect(statisticsOf([])).toBeNull();
});

test('of an even count of rewards the median is the middle of two values; std is that of the population', () => {
  expect(statisticsOf([1, 0, 0, 1])).toEqual({ mean: 0.5, median: 0.5, std: 0.5, count: 4 });
});

test('`show` counts trials by their outcome', () => {
  expect(tally(['scored', 'scored', 'truncated'])).toEqual({ scored: 2, truncated: 1 });
});

test('the columns of a printed table line up', () => {
  expect(
    table(
      ['run', 's'],
      [
        ['a', '10.5'],
        ['bcde', '7.0'],
      ],
    ),
  ).toBe('run      s\n────  ────\na     10.5\nbcde   7.0');
});
