import { expect, test } from 'vitest';
import { FairQueue } from './fair-queue.ts';

test('keys take turns, and a key’s items keep their order', () => {
  const queue = new FairQueue<string>();
  for (const item of ['a1', 'a2', 'a3', 'b1', 'c1', 'b2']) queue.add(item.charAt(0), item);
  const taken: (string | null)[] = [];
  while (queue.size > 0) {
    taken.push(queue.first());
    queue.shift();
  }
  expect(taken).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3']);
  expect(queue.first()).toBeNull();
});

test('an item that leaves is not taken, and its key keeps its turn', () => {
  const queue = new FairQueue<string>();
  const leave = queue.add('a', 'a1');
  queue.add('a', 'a2');
  queue.add('b', 'b1');
  leave();
  leave();
  expect([queue.first(), queue.size]).toEqual(['a2', 2]);
});

test('between two turns of a key, every other key that waits gets one', () => {
  let state = 11;
  const next = (below: number) => (state = (state * 48_271) % 2_147_483_647) % below;
  const queue = new FairQueue<{ key: string }>();
  const left = new Map<string, number>();
  /** Names for each key the other keys that waited at its last turn and have had no turn since. */
  const owed = new Map<string, Set<string>>();
  for (let i = 0; i < 20_000; i++) {
    if (next(3) > 0) {
      // One key has most of the items.
      const key = next(2) === 0 ? 'greedy' : `key ${next(9)}`;
      queue.add(key, { key });
      left.set(key, (left.get(key) ?? 0) + 1);
      continue;
    }
    const first = queue.first();
    if (!first) continue;
    queue.shift();
    expect([...(owed.get(first.key) ?? [])]).toEqual([]);
    left.set(first.key, (left.get(first.key) ?? 0) - 1);
    for (const others of owed.values()) others.delete(first.key);
    owed.set(
      first.key,
      new Set([...left].filter(([key, count]) => key !== first.key && count > 0).map(([key]) => key)),
    );
  }
  expect(queue.size).toBe([...left.values()].reduce((sum, count) => sum + count, 0));
});
