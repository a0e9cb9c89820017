import { expect, test } from 'vitest';
import type { CallRecord } from '../../store/queries/record-calls.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { GroupCommit } from './group-commit.ts';

const codeOf = (error: unknown) => (error instanceof Error && 'code' in error ? error.code : error);

test('calls beyond the bound of the queue are refused while a commit hangs, and are recorded again after it', async () => {
  const hanging = Promise.withResolvers<Set<string>>();
  const group = new GroupCommit({ waitMs: 600_000, maxQueued: 8, log: () => {}, retract: async () => {}, commit: () => hanging.promise });
  const record = () => group.record(callRecord({})).catch(codeOf);
  const waiting = Array.from({ length: 8 }, record);
  expect(await Promise.all(Array.from({ length: 12 }, record))).toEqual(Array(12).fill('store_unavailable'));
  hanging.resolve(new Set());
  expect(await Promise.all(waiting)).toEqual(Array(8).fill('recorded'));
  expect(await record()).toBe('recorded');
});

test('calls beyond the bound of bytes are refused while a commit hangs, the call being committed included, and the bytes are free after it', async () => {
  const hanging = Promise.withResolvers<Set<string>>();
  const group = new GroupCommit({ waitMs: 600_000, maxHeldBytes: 1000, maxGroup: 1, log: () => {}, retract: async () => {}, commit: () => hanging.promise });
  const record = (size: number) => group.record(callRecord({ size })).catch(codeOf);
  const committing = record(999);
  await new Promise((resolve) => setTimeout(resolve, 1));
  const waiting = [committing, record(5000)];
  expect(await record(1)).toBe('store_unavailable');
  hanging.resolve(new Set());
  expect(await Promise.all(waiting)).toEqual(['recorded', 'recorded']);
  expect(await Promise.all([record(999), record(1)])).toEqual(['recorded', 'recorded']);
});

test('large calls that wait are committed in groups of bounded size, and a call larger than the bound is committed alone', async () => {
  const groups: number[][] = [];
  const commit = async (calls: CallRecord[]) => {
    groups.push(calls.map(({ size = 0 }) => size));
    return new Set<string>();
  };
  const group = new GroupCommit({ waitMs: 600_000, maxGroupBytes: 100, log: () => {}, retract: async () => {}, commit });
  await Promise.all([60, 40, 1, 500, 30, 30].map((size) => group.record(callRecord({ size }))));
  expect(groups).toEqual([[60, 40], [1], [500], [30, 30]]);
});
