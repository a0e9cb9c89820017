import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { openAttempt } from '../store/queries/open-attempt.ts';
import { sealTrial } from '../store/queries/seal-trial.ts';
import { groups, runs, trials, type RunStatus } from '../store/schema.ts';
import { useDatabase } from '../store/testing/use-database.ts';
import { setRunStatus } from './set-run-status.ts';

const store = useDatabase();

/** A trial that was scored, one whose engine was lost, one that was skipped between two attempts, one whose host is slow to say that it is cut, and one of an evaluation that goes on. */
async function ended(runId: string, status: RunStatus): Promise<(string | null)[]> {
  await store.db.insert(runs).values({ id: runId, config: {} });
  const group = { runId, ordinal: 0, task: 't', agent: 'a', size: 4, policyVersion: 0 };
  await store.db.insert(groups).values([{ ...group, id: `${runId}/train`, kind: 'train' }, { ...group, id: `${runId}/eval`, kind: 'eval' }]);
  const names = ['scored', 'lost', 'skipped', 'slow', 'evaluated'].map((name) => `${runId}-${name}`);
  const [scored = '', lost = '', skipped = '', slow = '', evaluated = ''] = names;
  for (const trialId of names) await openAttempt(store.db, { trialId, runId, groupId: trialId === evaluated ? `${runId}/eval` : `${runId}/train` });
  await sealTrial(store.db, { trialId: scored, outcome: 'scored', rewards: { reward: 1 } });
  for (const trialId of [lost, skipped, evaluated]) await sealTrial(store.db, { trialId, outcome: 'infra_error', reason: 'activity Heartbeat timeout' });
  await sealTrial(store.db, { trialId: skipped, outcome: 'cancelled', final: true });
  await setRunStatus(store)({ runId, status });
  await sealTrial(store.db, { trialId: slow, outcome: 'cancelled', reason: 'its run ended', final: false });
  const outcomeOf = async (id: string) => (await store.db.select().from(trials).where(eq(trials.id, id)))[0]?.outcome ?? null;
  return Promise.all(names.map(outcomeOf));
}

test('trials that a completed run let go of have no outcome for ever', async () => {
  expect(await ended('done', 'completed')).toEqual(['scored', 'infra_error', 'cancelled', 'cancelled', null]);
  expect(await ended('to-resume', 'failed')).toEqual(['scored', null, 'cancelled', null, null]);
});
