import { expect, test } from 'vitest';
import { defectOf, sampledOf } from './tokens.ts';

test.each([2 ** 31, -1, 1.5, '7', null])('an id that the record cannot hold is recorded as another: %j', (id) => {
  expect(sampledOf({ token_ids: [7, id] }).completion).toBeNull();
});

test.each([-1e39, Number.NaN, -Infinity])('a log-probability that 32 bits cannot hold is trained on: %d', (value) => {
  expect(defectOf([1], { completion: [7], logprobs: [value], mask: null })).toBe('length_mismatch');
});
