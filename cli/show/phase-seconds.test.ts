import { expect, test } from 'vitest';

import { phaseSeconds } from './phase-seconds.ts';

const SECONDS = { rollout: 20, train: 3600 };

test('the seconds of a train step are those of the attempt that made the version, without the time in which the run was stopped', () => {
  expect(phaseSeconds({ seconds: SECONDS, metrics: { 'timing_s/step': 12.5 } }, 'train')).toBe(12.5);
});

test('a train step without a time of its own, and other phases, have the seconds of the record', () => {
  expect(phaseSeconds({ seconds: SECONDS, metrics: {} }, 'train')).toBe(3600);
  expect(phaseSeconds({ seconds: SECONDS, metrics: { 'timing_s/step': 12.5 } }, 'rollout')).toBe(20);
});

test('a phase that is not over has no seconds', () => {
  expect(phaseSeconds({ seconds: SECONDS, metrics: {} }, 'publish')).toBeNull();
  expect(phaseSeconds({ seconds: { rollout: 20 }, metrics: { 'timing_s/step': 12.5 } }, 'train')).toBeNull();
});
