import { expect, test } from 'vitest';
import { runConfig } from '../core/run-config/run-config.ts';
import { groupPollInterval } from './group-poll-interval.ts';

const { deadlines } = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
/** Includes the ten minutes in which cut trials are verified. */
const LONGEST = deadlines.iteration + 600;

/** Returns the number of polls within this time if each one comes as early as possible. */
function pollsWithin(seconds: number): number {
  let polls = 0;
  for (let at = 0; at <= seconds * 1000; polls++) at += groupPollInterval(polls + 1);
  return polls;
}

test('a workflow’s history stays below 10,000 events in the longest rollout, with stragglers that end one by one (computed)', () => {
  const [groups, size, quorum] = [128, 16, 8];
  const task = 3;
  const activity = 3 + task;
  // A poll adds the timer that waits for a change and is cancelled, the timer between two polls, which fires, and the activity.
  const poll = 2 + 2 + task + activity;
  const told = groups * (1 + size - quorum) * (1 + task);
  const children = groups * (1 + 2 * (1 + task));
  const pollsOfThePool = Math.ceil(LONGEST / 60) * (2 + task + activity);
  const whatElseAnIterationHas = 100;
  expect(pollsWithin(LONGEST) * poll + told + children + pollsOfThePool + whatElseAnIterationHas).toBeLessThan(10_000);
});

test('a run’s first 63 polls of an iteration’s groups are one second apart', () => {
  for (let polls = 1; polls < 64; polls++) expect(groupPollInterval(polls)).toBe(1000);
});

test('after 63 polls of an iteration’s groups the time between them doubles every 16 polls, up to 128 seconds', () => {
  expect([64, 80, 96, 112, 128, 144, 160, 5000].map((polls) => groupPollInterval(polls) / 1000)).toEqual([
    2, 4, 8, 16, 32, 64, 128, 128,
  ]);
});
