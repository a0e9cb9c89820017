import { eq } from 'drizzle-orm';
import { beforeEach, expect, test } from 'vitest';
import { runConfig } from '../core/run-config/run-config.ts';
import type { Outcome } from '../core/outcomes.ts';
import { useDatabase } from '../tests/support/harness/use-database.ts';
import { openAttempt } from './queries/open-attempt.ts';
import { reopenFailed } from './queries/reopen-failed.ts';
import { sealAttempt } from './queries/seal-attempt.ts';
import { attempts, batches, groups, iterations, runs, trials } from './schema.ts';

const store = useDatabase();
beforeEach(async () => {
  await store.db.delete(runs);
  await store.db.delete(trials);
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 2 });
  await store.db.insert(runs).values({ id: 'r', config });
  for (const [iteration, take, status] of [
    [0, 1, 'done'],
    [1, 1, 'superseded'],
    [1, 2, 'open'],
  ] as const)
    await store.db.insert(iterations).values({ runId: 'r', iteration, take, policyVersion: 0, status });
});

/** Makes a group with one trial of each outcome. */
async function groupWith(id: string, of: { iteration: number; take: number; inBatch?: boolean }, outcomes: Outcome[]) {
  const { iteration, take, inBatch = false } = of;
  const batch = inBatch ? { batchIteration: iteration, batchTake: take } : {};
  const row = { id, runId: 'r', kind: 'train' as const, iteration, take, ordinal: 0, task: 't', agent: 'a', size: 4 };
  await store.db.insert(groups).values({ ...row, policyVersion: 0, endedAt: new Date(), ...batch });
  for (const [index, outcome] of outcomes.entries()) {
    const trialId = `${id}-${index}`;
    await openAttempt(store.db, { trialId, attempt: 1, runId: 'r', groupId: id, trialIndex: index });
    await sealAttempt(store.db, {
      trialId,
      attempt: 1,
      outcome,
      rewards: { reward: 0 },
      reason: 'it failed',
      final: true,
    });
  }
}

const outcomesOf = async (groupId: string) =>
  (await store.db.select().from(trials).where(eq(trials.groupId, groupId)).orderBy(trials.id)).map(
    ({ outcome }) => outcome,
  );

test('the failed trials of an open take can have a next attempt, and all others stay as they are', async () => {
  await groupWith('open', { iteration: 1, take: 2 }, ['scored', 'agent_error', 'verifier_error', 'truncated']);
  await groupWith('old', { iteration: 1, take: 1 }, ['agent_error']);
  await groupWith('trained', { iteration: 0, take: 1, inBatch: true }, ['agent_error']);
  const path = { sha256: 's', path: '/b' };
  await store.db.insert(batches).values({ runId: 'r', iteration: 0, take: 1, ...path, samples: 1, trials: 1 });
  expect(await reopenFailed(store.db, 'r')).toBe(2);
  expect(await outcomesOf('open')).toEqual(['scored', null, null, 'truncated']);
  expect(await outcomesOf('old')).toEqual(['agent_error']);
  expect(await outcomesOf('trained')).toEqual(['agent_error']);
  expect(await openAttempt(store.db, { trialId: 'open-1', attempt: 2 })).toMatchObject({ attempt: 2, created: true });
  const kept = await store.db.select().from(attempts).where(eq(attempts.trialId, 'open-1')).orderBy(attempts.attempt);
  expect(kept.map(({ outcome, reason }) => [outcome, reason])).toEqual([
    ['agent_error', 'it failed'],
    [null, null],
  ]);
  expect(await reopenFailed(store.db, 'r')).toBe(0);
});
