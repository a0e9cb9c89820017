import { expect, test } from 'vitest';
import { taskOrder } from './task-order.ts';

const tasks = ['/a/one', '/a/two', '/a/three', '/a/four', '/a/five'];

/** Returns the base names of the tasks of the first `epochs` epochs. */
const order = (listed: string[], epochs = 1, quarantined: string[] = []) =>
  Array.from({ length: epochs * listed.length }, (_, position) => position)
    .map(taskOrder([{ tasks: listed, weight: undefined }], 7, new Set(quarantined)))
    .map((task) => task?.split('/').at(-1));

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
  expect(taskOrder([{ tasks, weight: undefined }], 7, new Set(tasks))(0)).toBeNull();
});

const easy = { tasks: ['e1', 'e2', 'e3'], weight: 3 };
const hard = { tasks: ['h1', 'h2'], weight: 1 };
const mixed = (seed: number, length = 400, quarantined: string[] = []) =>
  Array.from({ length }, (_, position) => position).map(taskOrder([easy, hard], seed, new Set(quarantined)));

test('sources with weights have their share of every hundred positions, in an order that follows from the seed alone', () => {
  const sampled = mixed(7);
  for (const from of [0, 100, 200, 300])
    expect(sampled.slice(from, from + 100).filter((task) => task?.startsWith('e'))).toHaveLength(75);
  expect(mixed(7)).toEqual(sampled);
  expect(mixed(8)).not.toEqual(sampled);
});

test('each task of a source with a weight has the same number of turns', () => {
  const sampled = mixed(7);
  for (const task of easy.tasks) expect(sampled.filter((each) => each === task)).toHaveLength(100);
  for (const task of hard.tasks) expect(sampled.filter((each) => each === task)).toHaveLength(50);
});

test('the places of a source whose tasks are all in quarantine go to the other sources', () => {
  expect(mixed(7, 100, hard.tasks).every((task) => task?.startsWith('e'))).toBe(true);
});

test('of two hundred sources, each has its turn within a block', () => {
  const many = Array.from({ length: 200 }, (_, i) => ({ tasks: [`t${i}`], weight: i + 1 }));
  const sampled = Array.from({ length: 2000 }, (_, position) => position).map(taskOrder(many, 7, new Set()));
  expect(new Set(sampled).size).toBe(200);
});

test.each([
  [9, 1, 90],
  [4, 1, 80],
  [1000, 1, 99],
])('weights %d and %d give the first source %d of a hundred positions', (first, second, expected) => {
  const both = [
    { tasks: ['a'], weight: first },
    { tasks: ['b'], weight: second },
  ];
  const sampled = Array.from({ length: 100 }, (_, position) => position).map(taskOrder(both, 7, new Set()));
  expect(sampled.filter((task) => task === 'a')).toHaveLength(expected);
});
