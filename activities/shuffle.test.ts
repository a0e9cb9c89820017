import { expect, test } from 'vitest';
import { shuffle } from './shuffle.ts';

const tasks = ['/a/one', '/a/two', '/a/three', '/a/four', '/a/five'];

test('two machines, or two mounts of the same tasks, walk in different orders', () => {
  const elsewhere = tasks.toReversed().map((task) => task.replace('/a/', '/mnt/b/'));
  expect(shuffle(elsewhere, 7).map((task) => task.split('/').at(-1))).toEqual(shuffle(tasks, 7).map((task) => task.split('/').at(-1)));
});

test('every epoch has the same order, or loses a task', () => {
  const orders = [1, 2, 3, 4].map((seed) => shuffle(tasks, seed));
  expect(new Set(orders.map(String)).size).toBeGreaterThan(1);
  for (const order of orders) expect(order.toSorted()).toEqual(tasks.toSorted());
});
