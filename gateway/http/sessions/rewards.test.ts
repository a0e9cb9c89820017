import { expect, test } from 'vitest';
import { completeTrial } from '../../../store/queries/complete-trial.ts';
import { readTrial } from '../../../store/queries/find-trials.ts';
import { ADMIN_KEY, useSharedGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway();

async function report(id: string, key: string, body: unknown) {
  const reply = await gateway.post(`/sessions/${id}/reward`, key, body);
  const { error, ...rest } = await reply.json();
  return error ? [reply.status, error.code] : [reply.status, rest];
}

test('an agent outside a run reports its reward once and cannot change it', async () => {
  const trial = await gateway.trial();
  const done = [200, { session_id: trial.id, attempt: 1, reported_reward: 0.75 }];
  expect(await report(trial.id, trial.key, { reward: 0.75 })).toEqual(done);
  expect(await report(trial.id, trial.key, { reward: 0.75 })).toEqual(done);
  expect(await report(trial.id, ADMIN_KEY, { reward: 1 })).toEqual([409, 'reward_refused']);
  expect(await readTrial(gateway.db, trial.id)).toMatchObject({ reportedReward: 0.75, rewards: null, outcome: null });
});

test('a reward reported for a run’s trial is refused', async () => {
  const trial = await gateway.trial({ runId: 'run', groupId: 'run/0.1/0' });
  for (const key of [trial.key, ADMIN_KEY])
    expect(await report(trial.id, key, { reward: 1 })).toEqual([409, 'reward_refused']);
  expect(await readTrial(gateway.db, trial.id)).toMatchObject({ reportedReward: null, rewards: null });
});

test('the keys of another trial, an old attempt and an ended attempt cannot report a reward', async () => {
  const [trial, other] = [await gateway.trial(), await gateway.trial()];
  expect(await report(trial.id, other.key, { reward: 1 })).toEqual([401, 'invalid_api_key']);
  const next = await gateway.trial({ trialId: trial.id, attempt: 2 });
  expect(await report(trial.id, trial.key, { reward: 1 })).toEqual([409, 'attempt_closed']);
  await completeTrial(gateway.db, { trialId: trial.id });
  expect(await report(trial.id, next.key, { reward: 1 })).toEqual([409, 'attempt_closed']);
  expect(await report(trial.id, ADMIN_KEY, { reward: 1 })).toEqual([
    200,
    { session_id: trial.id, attempt: 2, reported_reward: 1 },
  ]);
});

test('a new attempt begins without the reported reward of the old attempt', async () => {
  const trial = await gateway.trial();
  await report(trial.id, trial.key, { reward: 1 });
  await gateway.trial({ trialId: trial.id, attempt: 2 });
  expect(await readTrial(gateway.db, trial.id)).toMatchObject({ attempt: 2, reportedReward: null });
});

test.each([{}, { reward: 1e39 }, { reward: null }, { reward: '1' }, { reward: 1, more: 1 }, 'null', ''])(
  'a bad reported reward is refused: %j',
  async (body) => {
    const trial = await gateway.trial();
    expect(await report(trial.id, trial.key, body)).toEqual([400, 'invalid_request']);
  },
);

test('the body of a reported reward is read only up to a limit', async () => {
  const trial = await gateway.trial();
  expect(await report(trial.id, trial.key, `{"reward": 1${' '.repeat(8192)}}`)).toEqual([413, 'request_too_large']);
});
