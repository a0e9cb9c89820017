import { expect, test } from 'vitest';
import { statisticsOf, tally } from './statistics.ts';
import { table } from './table.ts';

test('statistics of no rewards are null, not a mean of 0', () => {
  expect(statisticsOf([])).toBeNull();
});

test('the median of an even count is the middle of two values, and std is that of the population', () => {
  expect(statisticsOf([1, 0, 0, 1])).toEqual({ mean: 0.5, median: 0.5, std: 0.5, count: 4 });
});

test('each outcome is counted under its own name', () => {
  expect(tally(['scored', 'scored', 'truncated'])).toEqual({ scored: 2, truncated: 1 });
});

test('a table’s columns line up', () => {
  expect(table(['run', 's'], [['a', '10.5'], ['bcde', '7.0']])).toBe('run      s\n────  ────\na     10.5\nbcde   7.0');
});
