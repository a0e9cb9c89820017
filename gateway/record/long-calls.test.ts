import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { LongCall } from '../../store/queries/long-calls.ts';
import { LongCalls } from './long-calls.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const rowOf = (callId: string): LongCall => ({
  callId,
  trialId: 'trial',
  attempt: 1,
  runId: 'run',
  engine: null,
  stream: true,
  constrained: false,
  startedAt: new Date(),
  firstTokenAt: null,
  tokens: 0,
});

/** The statements in order, and the rows that a store would then have. `fail` makes the next statements fail. */
function opened() {
  const statements: string[] = [];
  const lines: string[] = [];
  let hang: Promise<void> = Promise.resolve();
  const rows = new Set<string>();
  let fails = 0;
  const answer = async (name: string, ids: string[]) => {
    statements.push(`${name} ${ids.length}`);
    await hang;
    if (fails-- > 0) throw new Error('the database is away');
  };
  const longCalls = new LongCalls({
    note: async (calls) => {
      const ids = calls.map(({ callId }) => callId);
      await answer('note', ids);
      for (const id of ids) rows.add(id);
    },
    end: async (ids) => {
      await answer('end', ids);
      for (const id of ids) rows.delete(id);
    },
    log: (line, { level } = {}) => lines.push(`${level}: ${line}`),
  });
  const follow = () => {
    const id = randomUUID();
    return longCalls.follow(id, () => rowOf(id));
  };
  return {
    longCalls,
    follow,
    statements,
    lines,
    rows,
    fail: (count: number) => (fails = count),
    hangFor: (ms: number) => (hang = new Promise((resolve) => setTimeout(resolve, ms))),
  };
}

test('a thousand calls that become long together are written by one statement, renewed by one, and removed by one', async () => {
  const { follow, statements, rows } = opened();
  const ends = Array.from({ length: 1000 }, follow);
  await vi.advanceTimersByTimeAsync(4_900);
  expect(statements).toEqual([]);
  await vi.advanceTimersByTimeAsync(1_200);
  expect(statements).toEqual(['note 1000']);
  await vi.advanceTimersByTimeAsync(8_000);
  expect(statements).toEqual(['note 1000', 'note 1000']);
  for (const end of ends) end();
  await vi.advanceTimersByTimeAsync(2_000);
  expect(statements).toEqual(['note 1000', 'note 1000', 'end 1000']);
  expect(rows.size).toBe(0);
  expect(vi.getTimerCount()).toBe(0);
});

test('calls that end sooner write nothing and leave no timer', async () => {
  const { follow, statements } = opened();
  for (const end of Array.from({ length: 10 }, follow)) end();
  expect(vi.getTimerCount()).toBe(0);
  const end = follow();
  await vi.advanceTimersByTimeAsync(4_000);
  end();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(statements).toEqual([]);
});

test('what a database that is away did not take is written and removed once it is back', async () => {
  const { follow, rows, fail, lines } = opened();
  const end = follow();
  fail(3);
  await vi.advanceTimersByTimeAsync(16_000);
  expect(rows.size).toBe(0);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(rows.size).toBe(1);
  fail(2);
  end();
  await vi.advanceTimersByTimeAsync(4_000);
  expect(rows.size).toBe(1);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(rows.size).toBe(0);
  // A line for each time that it went away.
  expect(lines).toEqual(Array(2).fill(expect.stringMatching(/^warning: .*the database is away/)));
  expect(vi.getTimerCount()).toBe(0);
});

test('calls that begin while a statement is under way delay neither the next rows nor the removal of ended ones', async () => {
  const { follow, rows, hangFor } = opened();
  const end = follow();
  await vi.advanceTimersByTimeAsync(2_000);
  follow();
  hangFor(3_500);
  await vi.advanceTimersByTimeAsync(3_200);
  follow();
  await vi.advanceTimersByTimeAsync(2_000);
  expect(rows.size).toBe(1);
  end();
  await vi.advanceTimersByTimeAsync(1_200);
  expect(rows.size).toBe(1);
  await vi.advanceTimersByTimeAsync(3_500);
  expect(rows.size).toBe(2);
});

test('a statement that never answers does not keep later rows from being written', async () => {
  const { follow, rows, hangFor } = opened();
  follow();
  hangFor(1_000_000);
  await vi.advanceTimersByTimeAsync(6_000);
  hangFor(0);
  follow();
  await vi.advanceTimersByTimeAsync(14_000);
  expect(rows.size).toBe(2);
});

test('a gateway that closes removes the rows of its ended calls and writes nothing more', async () => {
  const { longCalls, follow, rows, statements } = opened();
  const end = follow();
  follow();
  await vi.advanceTimersByTimeAsync(6_000);
  expect(rows.size).toBe(2);
  end();
  await longCalls.close();
  expect(rows.size).toBe(1);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(statements).toEqual(['note 2', 'end 1']);
});
