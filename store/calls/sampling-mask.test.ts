import { expect, test } from 'vitest';
import { packMask, unpackMask } from './sampling-mask.ts';

test('a packed sampling mask unpacks to the same ids in ascending order', () => {
  const mask = [[5], [], [300, 2, 151_935, 127, 128], [2 ** 31 - 1, 0]];
  expect(unpackMask(packMask(mask))).toEqual([[5], [], [2, 127, 128, 300, 151_935], [0, 2 ** 31 - 1]]);
  expect(unpackMask(packMask([]))).toEqual([]);
});
