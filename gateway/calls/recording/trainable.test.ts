import { expect, test } from 'vitest';
import { defectOf } from './trainable.ts';

test.each([-1e39, Number.NaN, -Infinity, 0.5])(
  'a call with the impossible log-probability %d is not trained on',
  (value) => {
    expect(defectOf([1], { completion: [7], logprobs: [value], mask: null })).toBe('bad_logprobs');
  },
);

test.each([-1e9, 0, 1e-6])('a call with a log-probability of %d is trained on', (value) => {
  expect(defectOf([1], { completion: [7], logprobs: [value], mask: null })).toBeNull();
});
