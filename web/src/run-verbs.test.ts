import { expect, test } from 'vitest';
import type { Take } from '../../clients/typescript/client.ts';
import { verbsOf, versionsOf } from './run-verbs.ts';

const take = (iteration: number, status: Take['status'], trained: number | null, number = 1): Take => ({
  iteration,
  take: number,
  status,
  policy_version: 0,
  trained_version: trained,
  skipped: null,
  opened_at: 0,
  ended_at: null,
  seconds: {},
  metrics: {},
  batch_metrics: {},
  groups: 0,
  dropped_groups: 0,
  equal_groups: 0,
  unrewarded_groups: 0,
  trials: {},
  reward: null,
});
const config = { iterations: 2 };
const open = [take(0, 'open', null)];
const half = [take(0, 'superseded', 1), take(0, 'done', 1, 2)];

test.each([
  ['running', open, ['pause', 'resume', 'stop', 'cancel', 'redo']],
  ['running', [], ['pause', 'resume', 'stop', 'cancel']],
  ['blocked', open, ['resume', 'cancel', 'redo']],
  ['failed', open, ['resume', 'redo']],
  ['cancelled', [], ['resume']],
  ['completed', half, ['resume', 'redo']],
  ['completed', [...half, take(1, 'done', 2)], ['redo']],
] as const)('a run that is %s has the verbs that its state allows: %#', (status, takes, verbs) => {
  expect(verbsOf({ status, config }, takes)).toEqual(verbs);
});

test('the versions that a fork can begin from are each there once, the newest first, with the base model', () => {
  expect(versionsOf([...half, take(1, 'done', 2), take(2, 'open', null)])).toEqual([2, 1, 0]);
  expect(versionsOf([])).toEqual([0]);
});
