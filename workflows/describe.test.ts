import { ActivityFailure, ApplicationFailure, TimeoutFailure } from '@temporalio/common';
import { expect, test } from 'vitest';
import { describe } from './describe.ts';

const ofActivity = (cause: Error) => new ActivityFailure('Activity task failed', 'runAgent', '1', 'TIMEOUT', '', cause);

test.each([
  ['SCHEDULE_TO_START', 'activity ScheduleToStart timeout', /^no worker took runAgent in time: .*was stopped/],
  ['START_TO_CLOSE', 'activity StartToClose timeout', /^runAgent did not end in its time: .*was stopped/],
  ['SCHEDULE_TO_CLOSE', 'activity ScheduleToClose timeout', /^runAgent did not end in its time: no worker runs it/],
  ['HEARTBEAT', 'activity Heartbeat timeout', /^the worker that ran runAgent fell silent: .*was stopped/],
] as const)(
  'an activity that ended by %s is described by its cause and by the words of Temporal',
  (kind, words, text) => {
    const said = describe(ofActivity(new TimeoutFailure(words, undefined, kind)));
    expect(said).toMatch(text);
    expect(said).toContain(`(${words})`);
  },
);

test('a failure that an activity threw itself is described by its own words, also if the time for more tries is up', () => {
  const own = ApplicationFailure.nonRetryable('the disk is full');
  expect(describe(ofActivity(own))).toBe('the disk is full');
  const late = Object.assign(new TimeoutFailure('activity ScheduleToClose timeout', undefined, 'SCHEDULE_TO_CLOSE'), {
    cause: own,
  });
  expect(describe(ofActivity(late))).toBe('the disk is full');
});
