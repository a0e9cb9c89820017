import { expect, test } from 'vitest';
import { toolsOfCalls } from './tools-of-calls.ts';

test('each call has the tools of its request, whichever call they were first sent with', () => {
  const [one, two, three] = [{ name: 'one' }, { name: 'two' }, { name: 'three' }];
  const lists = toolsOfCalls([
    { shares_tools: null, tools: [one, two] },
    { shares_tools: { number: 1, tools: 2 }, tools: null },
    { shares_tools: { number: 2, tools: 1 }, tools: [three] },
    { shares_tools: { number: 1, tools: 1 }, tools: null },
    { shares_tools: null, tools: null },
  ]);
  expect(lists).toEqual([[one, two], [one, two], [one, three], [one], []]);
  // Whoever compares them need not look into them.
  expect(lists[1]).toBe(lists[0]);
});
