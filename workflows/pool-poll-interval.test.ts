import { expect, test } from 'vitest';
import { FIRST_POLL_MS, poolPollInterval, type PollResult } from './pool-poll-interval.ts';

/** Returns the pauses in seconds, including the first one. */
function pausesAfter(results: PollResult[]): number[] {
  const pauses = [FIRST_POLL_MS];
  for (const result of results) pauses.push(poolPollInterval(pauses.at(-1) ?? 0, result));
  return pauses.map((milliseconds) => milliseconds / 1000);
}

test('the interval between a run’s polls of its engines doubles after each failed repair, up to 15 minutes', () => {
  expect(pausesAfter(Array.from({ length: 8 }, () => 'failed'))).toEqual([10, 20, 40, 80, 160, 320, 640, 900, 900]);
});

test('the interval between a run’s polls of its engines stays long when a poll after failed repairs finds nothing to repair', () => {
  expect(pausesAfter(['failed', 'failed', 'failed', 'nothing', 'failed'])).toEqual([10, 20, 40, 80, 80, 160]);
});

test('the interval between a run’s polls of its engines is a minute after a successful repair, or while no replica is lost', () => {
  expect(pausesAfter(['failed', 'failed', 'failed', 'failed', 'repaired', 'nothing'])).toEqual([
    10, 20, 40, 80, 160, 60, 60,
  ]);
  expect(pausesAfter(['nothing', 'nothing', 'nothing', 'nothing'])).toEqual([10, 20, 40, 60, 60]);
});
