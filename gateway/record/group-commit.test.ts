import { expect, test } from 'vitest';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import type { LogFields } from '../../core/log.ts';
import { GroupCommit } from './group-commit.ts';

const call = (id: string) => callRecord({ id });
const lost = () => Object.assign(new Error('Connection terminated'), { code: 'ECONNRESET' });

function recorder(commit: (ids: string[], round: number) => Promise<string[]> | string[], waitMs = 1_000) {
  const rounds: string[][] = [];
  const retracted: string[] = [];
  const log: (LogFields | undefined)[] = [];
  const group = new GroupCommit({
    waitMs,
    maxQueued: 8,
    log: (_, fields) => log.push(fields),
    retract: async (ids) => void retracted.push(...ids),
    commit: async (calls) => {
      const ids = calls.map((one) => one.id);
      rounds.push(ids);
      return new Set(await commit(ids, rounds.length));
    },
  });
  return { group, rounds, retracted, log };
}

test('calls that arrive during a commit are recorded by one next commit', async () => {
  const { group, rounds } = recorder(async () => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    return [];
  });
  const first = group.record(call('a'));
  await new Promise((resolve) => setTimeout(resolve, 5));
  await Promise.all([first, ...['b', 'c', 'd'].map((id) => group.record(call(id)))]);
  expect(rounds).toEqual([['a'], ['b', 'c', 'd']]);
});

test('a row that PostgreSQL rejects fails only its own call, and not the others of its commit', async () => {
  const { group, log } = recorder((ids) => {
    if (ids.includes('bad')) throw Object.assign(new Error('value too long'), { code: '22001' });
    return ids.filter((id) => id === 'closed');
  });
  const verdicts = await Promise.allSettled(
    ['a', 'b', 'bad', 'closed', 'c'].map((id) => group.record(call(id), 'run')),
  );
  expect(verdicts.map((one) => (one.status === 'fulfilled' ? one.value : 'failed'))).toEqual([
    'recorded',
    'recorded',
    'failed',
    'refused',
    'recorded',
  ]);
  expect(log).toEqual([{ level: 'error', run_id: 'run', trial_id: 'trial', call_id: 'bad' }]);
});

test('the recorder repeats a commit after it lost the connection to PostgreSQL', async () => {
  const { group, rounds } = recorder((_, round) => {
    if (round < 3) throw lost();
    return [];
  });
  await expect(group.record(call('a'))).resolves.toBe('recorded');
  expect(rounds).toEqual([['a'], ['a'], ['a']]);
});

test('the recorder retracts a call whose commit succeeds after its agent got an error', async () => {
  const { group, retracted } = recorder(async () => {
    await new Promise((resolve) => setTimeout(resolve, 120));
    return [];
  }, 40);
  await expect(group.record(call('late'))).rejects.toMatchObject({ code: 'store_unavailable' });
  await group.close();
  expect(retracted).toEqual(['late']);
});

test('the recorder refuses calls once PostgreSQL was away for longer than calls may wait', async () => {
  const { group } = recorder(() => {
    throw lost();
  }, 150);
  const verdicts = await Promise.allSettled(Array.from({ length: 20 }, (_, i) => group.record(call(`${i}`))));
  expect(verdicts.every((one) => one.status === 'rejected' && one.reason.code === 'store_unavailable')).toBe(true);
});
