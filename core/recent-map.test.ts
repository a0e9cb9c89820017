import { expect, test } from 'vitest';
import { RecentMap } from './recent-map.ts';

test('a map keeps the entries that were used last, and forgets those that were not used for longest', () => {
  const map = new RecentMap<string, number>(4);
  for (const [i, key] of [...'abcade'].entries()) {
    if (map.get(key) === undefined) map.set(key, i);
  }
  expect([...'abcde'].map((key) => map.get(key))).toEqual([0, undefined, undefined, 4, 5]);
});

test('an entry that is set again has its new value, and pushes no other one out', () => {
  const map = new RecentMap<string, number>(4);
  for (const [i, key] of [...'cdabb'].entries()) map.set(key, i);
  expect([map.get('c'), map.get('b')]).toEqual([0, 4]);
});
