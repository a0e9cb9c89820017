import { expect, test } from 'vitest';
import { runConfig } from '../activities/run-config.ts';
import { betweenLooks } from './between-looks.ts';

const { deadlines } = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
/** Includes the ten minutes in which cut trials are verified. */
const LONGEST = deadlines.iteration + 600;

/** Returns the number of polls within this time if each one comes as early as possible. */
function looksWithin(seconds: number): number {
  let looks = 0;
  for (let at = 0; at <= seconds * 1000; looks++) at += betweenLooks(looks + 1);
  return looks;
}

test('a rollout of the longest time whose stragglers end one by one has a history of less than 10,000 events', () => {
  const [groups, size, quorum] = [128, 16, 8];
  const task = 3;
  const activity = 3 + task;
  // A poll adds the timer that waits for a change and is cancelled, the timer between two polls, which fires, and the activity.
  const look = 2 + 2 + task + activity;
  const told = groups * (1 + size - quorum) * (1 + task);
  const children = groups * (1 + 2 * (1 + task));
  const looksAtThePool = Math.ceil(LONGEST / 60) * (2 + task + activity);
  const whatElseAnIterationHas = 100;
  expect(looksWithin(LONGEST) * look + told + children + looksAtThePool + whatElseAnIterationHas).toBeLessThan(10_000);
});

test('the first 63 polls of an iteration are one second apart', () => {
  for (let looks = 1; looks < 64; looks++) expect(betweenLooks(looks)).toBe(1000);
});

test('the time between polls doubles every 16 polls, up to 128 seconds', () => {
  expect([64, 80, 96, 112, 128, 144, 160, 5000].map((looks) => betweenLooks(looks) / 1000)).toEqual([2, 4, 8, 16, 32, 64, 128, 128]);
});
