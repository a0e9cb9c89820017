import { expect, test } from 'vitest';
import { LatestMap } from './latest-map.ts';

/** Returns a map that was given each key's place in `keys`. */
function filled(keys: string): LatestMap<string, number> {
  const map = new LatestMap<string, number>();
  for (const [i, key] of [...keys].entries()) map.set(key, i);
  return map;
}

test('the values come in the order of their last use', () => {
  const map = filled('abac');
  expect([...map.values()]).toEqual([1, 2, 3]);
  map.get('b');
  map.set('d', 4);
  expect([...map.values()]).toEqual([2, 3, 1, 4]);
});

test.each([
  ['the first', 'a', [1, 2]],
  ['a middle', 'b', [0, 2]],
  ['the last', 'c', [0, 1]],
  ['no', 'x', [0, 1, 2]],
])('after %s entry is deleted, the others stay in the order of their last use', (_which, key, left) => {
  const map = filled('abc');
  map.delete(key);
  expect([...map.values()]).toEqual(left);
  map.set('d', 3);
  map.get('b');
  expect([...map.values()]).toEqual([...left.filter((each) => each !== 1), 3, ...left.filter((each) => each === 1)]);
});

test('a map without entries takes new ones', () => {
  const map = filled('a');
  map.delete('a');
  expect([[...map.values()], map.get('a')]).toEqual([[], undefined]);
  map.set('b', 1);
  expect([...map.values()]).toEqual([1]);
});
