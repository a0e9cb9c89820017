import { expect, test } from 'vitest';
import { taskAt } from './task-order.ts';

const tasks = ['/a/one', '/a/two', '/a/three', '/a/four', '/a/five'];

/** Returns the base names of the tasks of the first `epochs` epochs. */
const order = (listed: string[], epochs = 1, quarantined: string[] = []) =>
  Array.from({ length: epochs * listed.length }, (_, position) =>
    taskAt(listed, position, 7, new Set(quarantined))?.split('/').at(-1),
  );

test('the order in which a run samples tasks depends on their names alone, not on their folders or the order of the list', () => {
  const elsewhere = tasks.toReversed().map((task) => task.replace('/a/', '/mnt/b/'));
  expect(order(elsewhere, 4)).toEqual(order(tasks, 4));
});

test('an epoch samples every task once, and epochs have different orders', () => {
  const all = order(tasks, 4);
  const epochs = [0, 1, 2, 3].map((epoch) => all.slice(epoch * tasks.length, (epoch + 1) * tasks.length));
  expect(new Set(epochs.map(String)).size).toBeGreaterThan(1);
  for (const epoch of epochs) expect(epoch.toSorted()).toEqual(['five', 'four', 'one', 'three', 'two']);
});

test('the next task is sampled instead of one in quarantine, and no task is when all are in quarantine', () => {
  const without = order(tasks, 1, ['/a/two']);
  expect(without.includes('two')).toBe(false);
  expect(without.filter((name, position) => name !== order(tasks)[position])).toHaveLength(1);
  expect(taskAt(tasks, 0, 7, new Set(tasks))).toBeNull();
});
