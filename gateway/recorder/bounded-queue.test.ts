import { expect, test } from 'vitest';
import { callRecord } from '../../store/testing/call-record.ts';
import { GroupCommit } from './group-commit.ts';

test('calls beyond the bound of the queue are kept in memory while a commit hangs, or are refused for good', async () => {
  const hanging = Promise.withResolvers<Set<string>>();
  const group = new GroupCommit({ waitMs: 600_000, maxQueued: 8, log: () => {}, disown: async () => {}, commit: () => hanging.promise });
  const record = () => group.record(callRecord({})).catch((error: unknown) => (error instanceof Error && 'code' in error ? error.code : error));
  const waiting = Array.from({ length: 8 }, record);
  expect(await Promise.all(Array.from({ length: 12 }, record))).toEqual(Array(12).fill('store_unavailable'));
  hanging.resolve(new Set());
  expect(await Promise.all(waiting)).toEqual(Array(8).fill('recorded'));
  expect(await record()).toBe('recorded');
});

test('a few large calls fill the memory while a commit hangs', async () => {
  const hanging = Promise.withResolvers<Set<string>>();
  const group = new GroupCommit({ waitMs: 600_000, maxQueuedBytes: 1000, maxGroup: 1, log: () => {}, disown: async () => {}, commit: () => hanging.promise });
  const record = (size: number) => group.record(callRecord({ size })).catch((error: unknown) => (error instanceof Error && 'code' in error ? error.code : error));
  const committing = record(5000);
  await new Promise((resolve) => setTimeout(resolve, 1));
  const waiting = [committing, record(999), record(5000)];
  expect(await record(1)).toBe('store_unavailable');
  hanging.resolve(new Set());
  expect(await Promise.all(waiting)).toEqual(['recorded', 'recorded', 'recorded']);
});
