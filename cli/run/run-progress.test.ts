import { expect, test } from 'vitest';
import { progressTexts, statusLine } from './run-progress.ts';

const preparing = { status: 'running', reason: null, title: 'preparing', trials: '' };
const report = { phase: 'publish', waits_for: 'the trainer to load the model' };

test('a run that has no trial yet says what it waits for', () => {
  const text = 'r: preparing, first publication: waits for the trainer to load the model';
  expect(progressTexts('r', preparing, report)).toEqual([text, text]);
});

test('a run in a train step says how far the step is, and the log only that it trains', () => {
  const training = { ...preparing, title: 'iteration 0', trials: '8 scored' };
  const waiting = { phase: 'train', waits_for: 'the train step to version 1' };
  expect(progressTexts('r', training, waiting, 'train, pack 3 of 12')).toEqual([
    'r: iteration 0, train: pack 3 of 12',
    'r: iteration 0, train',
  ]);
});

test('a run that is being prepared says so once', () => {
  expect(progressTexts('r', preparing, { phase: 'preparing', waits_for: null })).toEqual([
    'r: preparing',
    'r: preparing',
  ]);
});

test('a run that publishes says what the publisher does, also in the log', () => {
  const loading = progressTexts('r', preparing, report, 'load weights, http://e:8000');
  expect(loading).toEqual([
    'r: preparing, first publication: load weights, http://e:8000',
    'r: preparing, first publication: load weights',
  ]);
});

test('the line of a run for `status` says what its step does, else why it is blocked and what it waits for', () => {
  const status = {
    ...{ run: 'r', phase: 'train', iteration: 2, iterations: 10, take: 1, policy_version: 2, reason: null },
    ...{ groups_ended: 8, groups_total: 8, trials: {}, groups: [], until: null, waits_for: 'the train step' },
  };
  expect(statusLine({ ...status, step: 'train, pack 3 of 12' })).toBe('run r: iteration 2 of 10, train: pack 3 of 12');
  expect(statusLine({ ...status, step: null })).toBe('run r: iteration 2 of 10, train: waits for the train step');
  expect(statusLine({ ...status, waits_for: null, step: null })).toBe('run r: iteration 2 of 10, train');
  expect(
    statusLine({ ...status, phase: 'blocked', reason: 'the disk is full', waits_for: 'a person', step: null }),
  ).toBe('run r: iteration 2 of 10, blocked: the disk is full; waits for a person');
  const engineless = { phase: 'waiting for engines', waits_for: 'engines that no other run has', step: null };
  expect(statusLine({ ...status, ...engineless })).toBe(
    'run r: iteration 2 of 10, waiting for engines that no other run has',
  );
});

test('the line of a run says nothing twice', () => {
  const evaluating = { ...preparing, title: 'evaluating policy 0', trials: '3 scored' };
  expect(progressTexts('r', evaluating, { phase: 'evaluation', waits_for: null })[0]).toBe(
    'r: evaluating policy 0: 3 scored',
  );
  expect(progressTexts('r', evaluating, { phase: 'completed', waits_for: null })[1]).toBe('r: completed');
  const reason = "waiting for the deployment's engine: run q has it until that run ends or releases it";
  const waiting = { phase: 'waiting for engines', waits_for: 'engines that no other run has' };
  expect(progressTexts('r', { ...preparing, reason }, waiting)).toEqual([`r: ${reason}`, `r: ${reason}`]);
});

test('the names of the trainer’s phases are explained after what they say, which a narrow terminal still shows', () => {
  const training = { ...preparing, title: 'iteration 0' };
  expect(progressTexts('r', training, { phase: 'train', waits_for: null }, 'proximal, pack 3 of 12')[0]).toBe(
    'r: iteration 0, train: proximal, pack 3 of 12 (log-probabilities before the step)',
  );
  expect(progressTexts('r', preparing, report, 'start ranks')[1]).toBe(
    "r: preparing, first publication: start ranks (the trainer's processes)",
  );
});

test('a run with trials says how many have which outcome, and a run with a reason says the reason', () => {
  const rollout = { ...preparing, title: 'iteration 0', trials: '3 scored, 5 running' };
  const waiting = { phase: 'rollout', waits_for: '8 trials for the batch' };
  expect(progressTexts('r', rollout, waiting)).toEqual([
    'r: iteration 0, rollout: 3 scored, 5 running',
    'r: iteration 0, rollout',
  ]);
  const reason = 'waiting for engines: run q began to wait before this one';
  expect(progressTexts('r', { ...preparing, reason }, report)).toEqual([`r: ${reason}`, `r: ${reason}`]);
  expect(progressTexts('r', rollout, null)[1]).toBe('r: iteration 0, running');
});
