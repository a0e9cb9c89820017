import { expect, test } from 'vitest';
import type { CallRecord } from '../../store/queries/record-calls.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { GroupCommit } from './group-commit.ts';

const codeOf = (error: unknown) => (error instanceof Error && 'code' in error ? error.code : error);

test('while a commit hangs, the recorder refuses calls beyond the limit of its queue, and afterwards it records calls again', async () => {
  const hanging = Promise.withResolvers<Set<string>>();
  const group = new GroupCommit({
    waitMs: 600_000,
    maxQueued: 8,
    log: () => {},
    retract: async () => {},
    commit: () => hanging.promise,
  });
  const record = () => group.record(callRecord({})).catch(codeOf);
  const waiting = Array.from({ length: 8 }, record);
  expect(await Promise.all(Array.from({ length: 12 }, record))).toEqual(Array(12).fill('store_unavailable'));
  hanging.resolve(new Set());
  expect(await Promise.all(waiting)).toEqual(Array(8).fill('recorded'));
  expect(await record()).toBe('recorded');
});

test('while a commit hangs, the recorder refuses calls beyond its limit of bytes, and afterwards the bytes are free again', async () => {
  const hanging = Promise.withResolvers<Set<string>>();
  const group = new GroupCommit({
    waitMs: 600_000,
    maxHeldBytes: 1000,
    maxGroup: 1,
    log: () => {},
    retract: async () => {},
    commit: () => hanging.promise,
  });
  const record = (size: number) => group.record(callRecord({ size })).catch(codeOf);
  const committing = record(999);
  await new Promise((resolve) => setTimeout(resolve, 1));
  const waiting = [committing, record(5000)];
  expect(await record(1)).toBe('store_unavailable');
  hanging.resolve(new Set());
  expect(await Promise.all(waiting)).toEqual(['recorded', 'recorded']);
  expect(await Promise.all([record(999), record(1)])).toEqual(['recorded', 'recorded']);
});

test('the recorder commits large calls that wait in groups of limited size, and a call larger than the limit alone', async () => {
  const groups: number[][] = [];
  const commit = async (calls: CallRecord[]) => {
    groups.push(calls.map(({ size = 0 }) => size));
    return new Set<string>();
  };
  const group = new GroupCommit({
    waitMs: 600_000,
    maxGroupBytes: 100,
    log: () => {},
    retract: async () => {},
    commit,
  });
  await Promise.all([60, 40, 1, 500, 30, 30].map((size) => group.record(callRecord({ size }))));
  expect(groups).toEqual([[60, 40], [1], [500], [30, 30]]);
});
