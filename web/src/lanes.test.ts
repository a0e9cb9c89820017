import { expect, test } from 'vitest';
import type { TimelineAttempt, TimelineGroup, TimelineTrial } from '../../clients/typescript/client.ts';
import { isStraggler, lanesOf } from './lanes.ts';

const GROUP: TimelineGroup = {
  group_id: 'run/0.1/0',
  task: 't',
  agent: 'a',
  size: 1,
  dropped: null,
  is_unclaimed: false,
  claimed_at: null,
  opened_at: 100,
  deadline_at: null,
  ended_at: 200,
  trials: [],
};
const attemptOf = (given: Partial<TimelineAttempt>): TimelineAttempt => ({
  attempt: 1,
  outcome: 'scored',
  reason: null,
  evidence: null,
  host: null,
  opened_at: 110,
  ended_at: 160,
  seconds: {},
  ...given,
});
const trialOf = (attempts: TimelineAttempt[], given: Partial<TimelineTrial> = {}): TimelineTrial => ({
  trial_id: 'run-0.1-0-0',
  trial_index: 0,
  agent: null,
  outcome: 'scored',
  has_outcome: true,
  reward: 1,
  calls: 1,
  tokens: 1,
  completed_at: null,
  call_since: null,
  attempts,
  ...given,
});
const shown = (trial: TimelineTrial, group: Partial<TimelineGroup> = {}, isOver = false) =>
  lanesOf(trial, { ...GROUP, ...group }, { until: 300, isOver }).map(({ name, start, end, engineWait }) => [
    name,
    start,
    end,
    engineWait,
  ]);

test('a trial waits for a slot, opens, runs its agent and is verified, by the times that the record has', () => {
  const trial = trialOf([attemptOf({ seconds: { agent: 30, verify: 5, engine_wait: 12 } })]);
  expect(shown(trial)).toEqual([
    ['waits', 100, 110, 0],
    ['opens', 110, 125, 0],
    ['agent', 125, 155, 12],
    ['verifies', 155, 160, 0],
  ]);
});

test('without the seconds of its agent, an attempt only says that it was open; its verification begins when it takes no more calls', () => {
  expect(shown(trialOf([attemptOf({})], { completed_at: 150 }))).toEqual([
    ['waits', 100, 110, 0],
    ['open', 110, 150, 0],
    ['verifies', 150, 160, 0],
  ]);
});

test('a verification begins when the trial takes no more calls; the removal of its sandbox is not the opening’s', () => {
  const trial = trialOf([attemptOf({ opened_at: 100, ended_at: 192, seconds: { agent: 60, verify: 5 } })], {
    completed_at: 175,
  });
  expect(shown(trial)).toEqual([
    ['opens', 100, 115, 0],
    ['agent', 115, 175, 0],
    ['verifies', 175, 192, 0],
  ]);
});

test('a trial whose attempt ended without an outcome of the trial waits for the next one until now, unless its group or run has ended', () => {
  const attempts = [attemptOf({ outcome: 'infra_error', opened_at: 100, ended_at: 120 })];
  const trial = trialOf(attempts, { outcome: 'infra_error', has_outcome: false, completed_at: 120 });
  const tried = ['open', 100, 120, 0];
  expect(shown(trial, { ended_at: null })).toEqual([tried, ['waits', 120, 300, 0]]);
  expect(shown(trial)).toEqual([tried]);
  expect(shown(trial, { ended_at: null }, true)).toEqual([tried]);
});

test('a trial of an external group waits until a program claims the group', () => {
  const trial = trialOf([attemptOf({ outcome: null, opened_at: 100, ended_at: null })], { outcome: null });
  expect(shown(trial, { ended_at: null, is_unclaimed: true })).toEqual([['waits', 100, 300, 0]]);
  expect(shown(trial, { ended_at: null, claimed_at: 150 })).toEqual([
    ['waits', 100, 150, 0],
    ['open', 150, 300, 0],
  ]);
});

test('an attempt under way ends now, and between two attempts a trial waits', () => {
  const attempts = [
    attemptOf({ outcome: 'infra_error', opened_at: 100, ended_at: 120, seconds: { agent: 8 } }),
    attemptOf({ attempt: 2, outcome: null, opened_at: 130, ended_at: null }),
  ];
  expect(shown(trialOf(attempts, { outcome: null }))).toEqual([
    ['opens', 100, 112, 0],
    ['agent', 112, 120, 0],
    ['waits', 120, 130, 0],
    ['open', 130, 300, 0],
  ]);
});

test('no lane is longer than its attempt, whatever the seconds say', () => {
  const trial = trialOf([attemptOf({ opened_at: 100, seconds: { agent: 500, verify: 70, engine_wait: 900 } })]);
  expect(shown(trial)).toEqual([['verifies', 100, 160, 0]]);
});

test('a trial is a straggler when it runs on after its group has ended', () => {
  expect(isStraggler(trialOf([attemptOf({ ended_at: 202 })]), GROUP)).toBe(true);
  expect(isStraggler(trialOf([attemptOf({ ended_at: null })], { outcome: null }), GROUP)).toBe(true);
  expect(isStraggler(trialOf([attemptOf({ ended_at: 199 })]), GROUP)).toBe(false);
  // Two workers' clocks differ.
  expect(isStraggler(trialOf([attemptOf({ ended_at: 200.5 })]), GROUP)).toBe(false);
  expect(isStraggler(trialOf([attemptOf({ ended_at: 202 })]), { ...GROUP, ended_at: null })).toBe(false);
});
