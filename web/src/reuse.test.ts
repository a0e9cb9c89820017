import { expect, test } from 'vitest';
import { reuse } from './reuse.ts';

test('what did not change stays the same object, and what changed is new', () => {
  const before = { run: { status: 'running' }, takes: [{ iteration: 0 }, { iteration: 1, done: false }] };
  expect(reuse(before, structuredClone(before))).toBe(before);
  const after = reuse(before, { ...structuredClone(before), takes: [{ iteration: 0 }, { iteration: 1, done: true }] });
  expect(after).toEqual({ run: { status: 'running' }, takes: [{ iteration: 0 }, { iteration: 1, done: true }] });
  expect([after.run === before.run, after.takes[0] === before.takes[0]]).toEqual([true, true]);
  expect(after.takes[1]).not.toBe(before.takes[1]);
  expect(reuse(before, { run: before.run })).toEqual({ run: before.run });
});
