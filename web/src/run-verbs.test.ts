import { expect, test } from 'vitest';
import type { Take } from '../../clients/typescript/client.ts';
import { lastTakeOf, verbsOf, versionsOf } from './run-verbs.ts';

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
  ['running', open, ['pause', 'stop', 'cancel', 'redo']],
  ['running', [], ['pause', 'stop', 'cancel']],
  ['blocked', open, ['resume', 'cancel', 'redo']],
  ['failed', open, ['resume', 'redo']],
  ['cancelled', [], ['resume']],
  ['completed', half, ['resume', 'redo']],
  ['completed', [...half, take(1, 'done', 2)], ['redo']],
] as const)('a run that is %s has the verbs that its state allows: %#', (status, takes, verbs) => {
  expect(verbsOf({ status, config, rescores: null, paused_until: null }, takes)).toEqual(verbs);
});

test('a run that is paused is resumed, and not paused again', () => {
  const run = { status: 'running', config, rescores: null, paused_until: 2e9 } as const;
  expect(verbsOf(run, [])).toEqual(['resume', 'stop', 'cancel']);
});

test('a rescoring that has completed can be resumed, which publishes what it trained', () => {
  const run = { status: 'completed', config: { iterations: 1 }, rescores: 'first/0.1', paused_until: null } as const;
  expect(verbsOf(run, [take(0, 'done', 1)])).toEqual(['resume', 'redo']);
});

test('the last take is the newest one of the newest iteration', () => {
  expect(lastTakeOf([take(1, 'open', null), ...half])).toEqual({ iteration: 1, take: 1 });
  expect(lastTakeOf(half)).toEqual({ iteration: 0, take: 2 });
  expect(lastTakeOf([])).toBeNull();
});

test('the versions that a fork can begin from are each there once, the newest first, with the base model', () => {
  expect(versionsOf([...half, take(1, 'done', 2), take(2, 'open', null)])).toEqual([2, 1, 0]);
  expect(versionsOf([])).toEqual([0]);
});
