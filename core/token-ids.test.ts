import { expect, test } from 'vitest';
import { concat, sideBySide } from './token-ids.ts';

test('lists side by side in one array are joined without a copy, and in the other order with one', () => {
  const [prompt, completion] = sideBySide([1, 2], [3]);
  const joined = concat(prompt, completion);
  expect([[...prompt], [...completion], [...joined]]).toEqual([[1, 2], [3], [1, 2, 3]]);
  expect(joined.buffer).toBe(prompt.buffer);
  expect([...concat(completion, prompt)]).toEqual([3, 1, 2]);
});

test.each([
  ['the first one', [], [7]],
  ['the second one', [7], []],
  ['each', [], []],
])('lists of which %s is empty are joined', (_which, a, b) => {
  expect([...concat(...sideBySide(a, b))]).toEqual([...a, ...b]);
});
