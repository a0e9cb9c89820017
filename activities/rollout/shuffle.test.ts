import { expect, test } from 'vitest';
import { shuffle } from './shuffle.ts';

const tasks = ['/a/one', '/a/two', '/a/three', '/a/four', '/a/five'];

test('the order depends on the tasks’ names alone, not on their folder or the order of listing', () => {
  const elsewhere = tasks.toReversed().map((task) => task.replace('/a/', '/mnt/b/'));
  expect(shuffle(elsewhere, 7).map((task) => task.split('/').at(-1))).toEqual(shuffle(tasks, 7).map((task) => task.split('/').at(-1)));
});

test('epochs have different orders, and each has every task once', () => {
  const orders = [1, 2, 3, 4].map((seed) => shuffle(tasks, seed));
  expect(new Set(orders.map(String)).size).toBeGreaterThan(1);
  for (const order of orders) expect(order.toSorted()).toEqual(tasks.toSorted());
});
