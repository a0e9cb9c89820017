import { beforeAll, expect, test } from 'vitest';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { groups, runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { findOpenTrial } from './find-open-trial.ts';

const store = useDatabase();
const find = (trialId: string, runId = 'first') => findOpenTrial(store)({ runId, trialId });

beforeAll(async () => {
  await store.db.insert(runs).values([
    { id: 'first', config: {} },
    { id: 'first-0.1-1', config: {} },
  ]);
  const group = { runId: 'first', ordinal: 0, task: 't', agent: 'a', size: 2, policyVersion: 0 };
  const past = new Date(Date.now() - 10 * 86_400_000);
  await store.db.insert(groups).values([
    { ...group, id: 'first/0.1/1', kind: 'train' },
    { ...group, id: 'first/eval@0/1', kind: 'eval' },
    { ...group, id: 'first/0.1/2', kind: 'train', endedAt: past, deadlineAt: past },
  ]);
  await openAttempt(store.db, { trialId: 'first-0.1-1-0', runId: 'first', groupId: 'first/0.1/1', trialIndex: 0 });
});

test('an open trial, also one that waits for a sandbox, is found by its id with its group and trial index', async () => {
  expect(await find('first-0.1-1-0')).toEqual({ groupId: 'first/0.1/1', trialIndex: 0 });
  expect(await find('first-0.1-1-1')).toEqual({ groupId: 'first/0.1/1', trialIndex: 1 });
  expect(await find('first-eval.0-1-1')).toEqual({ groupId: 'first/eval@0/1', trialIndex: 1 });
});

test.each([
  ['first', 'first-0.1-1-2'],
  ['first', 'first-0.1-1-01'],
  ['first', 'first-0.1-2-0'],
  ['first', 'first-0.1-3-0'],
  ['first', 'first'],
  ['first-0.1-1', 'first-0.1-1-1'],
])(
  'a request to skip or extend a trial of run %s is refused for %s, which is not among its open trials',
  async (runId, trialId) => {
    await expect(find(trialId, runId)).rejects.toMatchObject({
      type: 'bad_input',
      message: `run ${runId} has no trial ${trialId}: "npx trialgate show ${runId}" lists them`,
    });
  },
);

test('a request to skip or extend a trial that has ended is refused with its outcome', async () => {
  const trialId = 'first-eval.0-1-0';
  await openAttempt(store.db, { trialId, runId: 'first', groupId: 'first/eval@0/1', trialIndex: 0 });
  await sealAttempt(store.db, { trialId, outcome: 'scored', rewards: { reward: 1 } });
  await expect(find(trialId)).rejects.toMatchObject({ message: `trial ${trialId} has ended: scored` });
});
