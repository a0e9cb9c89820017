import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { completeTrial } from './queries/complete-trial.ts';
import { deleteTrials } from './queries/delete-trials.ts';
import { openAttempt } from './queries/open-attempt.ts';
import { readCalls } from './queries/read-calls.ts';
import { findTrial } from './queries/find-trials.ts';
import { recordCalls } from './queries/record-calls.ts';
import { sealAttempt } from './queries/seal-attempt.ts';
import { attempts, groups, runs, trials } from './schema.ts';
import { callRecord } from '../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../tests/support/harness/use-database.ts';

const store = useDatabase();

const call = (trialId: string, attempt: number) => callRecord({ trialId, attempt });

test('opening the same attempt twice gives the same attempt', async () => {
  expect(await openAttempt(store.db, { trialId: 'twice', attempt: 1 })).toEqual({
    trialId: 'twice',
    attempt: 1,
    created: true,
  });
  expect(await openAttempt(store.db, { trialId: 'twice', attempt: 1 })).toEqual({
    trialId: 'twice',
    attempt: 1,
    created: false,
  });
  expect(await openAttempt(store.db, { trialId: 'twice' })).toMatchObject({ attempt: 1, created: false });
});

test('the store refuses a late call of an earlier attempt, and that attempt stays closed', async () => {
  await openAttempt(store.db, { trialId: 'zombie', attempt: 1 });
  await openAttempt(store.db, { trialId: 'zombie', attempt: 2 });
  const [late, current] = [call('zombie', 1), call('zombie', 2)];
  expect(await recordCalls(store.db, [late, current])).toEqual(new Set([late.id]));
  expect(await readCalls(store.db, { trialId: 'zombie', attempt: 1 })).toEqual([]);
  await expect(openAttempt(store.db, { trialId: 'zombie', attempt: 1 })).rejects.toMatchObject({
    code: 'attempt_closed',
  });
  const rows = await store.db.select().from(attempts);
  expect(rows.find((row) => row.trialId === 'zombie' && row.attempt === 1)?.reason).toBe('superseded by attempt 2');
});

test('the store refuses late calls of a completed trial, opens no further attempt of a sealed one, and removes a deleted one', async () => {
  await openAttempt(store.db, { trialId: 'done' });
  await completeTrial(store.db, { trialId: 'done' });
  await completeTrial(store.db, { trialId: 'done' });
  const late = call('done', 1);
  expect(await recordCalls(store.db, [late])).toEqual(new Set([late.id]));
  await sealAttempt(store.db, { trialId: 'done', attempt: 1, outcome: 'scored', rewards: { reward: 0.5 } });
  await expect(openAttempt(store.db, { trialId: 'done', attempt: 2 })).rejects.toMatchObject({
    code: 'attempt_closed',
  });
  await openAttempt(store.db, { trialId: 'gone' });
  await recordCalls(store.db, [call('gone', 1)]);
  await deleteTrials(store.db, ['gone']);
  await deleteTrials(store.db, ['never was']);
  expect(await findTrial(store.db, 'gone')).toBeUndefined();
  expect(await readCalls(store.db, { trialId: 'gone', attempt: 1 })).toEqual([]);
});

test('a commit that is repeated after its trial was completed refuses only the calls that are not stored', async () => {
  await openAttempt(store.db, { trialId: 'repeated' });
  const [there, late] = [call('repeated', 1), call('repeated', 1)];
  await recordCalls(store.db, [there]);
  await completeTrial(store.db, { trialId: 'repeated' });
  expect(await recordCalls(store.db, [there, late])).toEqual(new Set([late.id]));
  expect(await findTrial(store.db, 'repeated')).toMatchObject({ recorded: 1, usedCalls: 1 });
});

test('the first seal of a trial holds: a second one changes nothing and returns the first', async () => {
  await openAttempt(store.db, { trialId: 'sealed' });
  const first = await sealAttempt(store.db, {
    trialId: 'sealed',
    attempt: 1,
    outcome: 'scored',
    rewards: { reward: 1 },
    seconds: { agent: 2 },
  });
  expect(first).toMatchObject({ outcome: 'scored', rewards: { reward: 1 } });
  const second = await sealAttempt(store.db, {
    trialId: 'sealed',
    attempt: 1,
    outcome: 'agent_error',
    rewards: { reward: 0 },
  });
  expect(second).toMatchObject({ outcome: 'scored', rewards: { reward: 1 } });
  await expect(sealAttempt(store.db, { trialId: 'sealed', attempt: 2, outcome: 'scored' })).rejects.toMatchObject({
    code: 'attempt_closed',
  });
});

test('a seal stores its reason and the rewards’ names with invalid characters replaced', async () => {
  await openAttempt(store.db, { trialId: 'strange' });
  const rewards = Object.fromEntries([
    ['a\u0000b', 1],
    ['\ud800', 0],
  ]);
  const sealed = await sealAttempt(store.db, {
    trialId: 'strange',
    outcome: 'agent_error',
    reason: 'exit code 1: \u0000\ud800!',
    rewards,
  });
  expect(sealed).toMatchObject({ reason: 'exit code 1: \ufffd\ufffd!', rewards: { 'a\ufffdb': 1, '\ufffd': 0 } });
});

test('a seal with the outcome `infra_error` closes the attempt, and the trial can be opened for its next one', async () => {
  await openAttempt(store.db, { trialId: 'infra', attempt: 1 });
  const after = await sealAttempt(store.db, {
    trialId: 'infra',
    attempt: 1,
    outcome: 'infra_error',
    reason: 'host lost',
  });
  expect(after.outcome).toBeNull();
  const late = call('infra', 1);
  expect(await recordCalls(store.db, [late])).toEqual(new Set([late.id]));
  await expect(openAttempt(store.db, { trialId: 'infra', attempt: 1 })).rejects.toMatchObject({
    code: 'attempt_closed',
  });
  expect(await openAttempt(store.db, { trialId: 'infra' })).toEqual({ trialId: 'infra', attempt: 2, created: true });
  expect(await recordCalls(store.db, [call('infra', 2)])).toEqual(new Set());
});

test('the store refuses a call exactly when a concurrent seal of its trial came first', async () => {
  await openAttempt(store.db, { trialId: 'race' });
  const record = call('race', 1);
  const [refused] = await Promise.all([
    recordCalls(store.db, [record]),
    sealAttempt(store.db, { trialId: 'race', attempt: 1, outcome: 'scored', rewards: { reward: 1 } }),
  ]);
  const stored = await readCalls(store.db, { trialId: 'race', attempt: 1 });
  expect(stored.length).toBe(refused.size === 0 ? 1 : 0);
});

test('a trial that many processes open at the same time has one attempt', async () => {
  const opened = await Promise.all(Array.from({ length: 12 }, () => openAttempt(store.db, { trialId: 'crowd' })));
  expect(opened.map((one) => one.attempt)).toEqual(Array(12).fill(1));
  expect(opened.filter((one) => one.created)).toHaveLength(1);
});

test('the store returns ids, log-probabilities and texts as they were recorded', async () => {
  await openAttempt(store.db, { trialId: 'exact' });
  const logprobs = Float32Array.from([-0.1, -4.366866111755371, -9999]);
  const request = { messages: [{ role: 'user', content: '\u0000 🦀 \ud800', name: null }], model: 'x', tools: [] };
  const response = { choices: [{ index: 0, message: { role: 'assistant', content: '\u0000' } }] };
  const record = callRecord({
    trialId: 'exact',
    request,
    response,
    reason: 'with \u0000 and half of \ud83e inside',
    sampling: { stop: ['\u0000', '\\u0000', '\\\ud800'] },
    promptTokenIds: Int32Array.from([0, 151_935, 2 ** 31 - 1]),
    choice: { completionTokenIds: Int32Array.from([]), logprobs },
  });
  await recordCalls(store.db, [record]);
  await recordCalls(store.db, [record]);
  const [stored, ...more] = await readCalls(store.db, { trialId: 'exact', attempt: 1 });
  expect(more).toEqual([]);
  expect(stored?.logprobs).toEqual(logprobs);
  expect([...(stored?.promptTokenIds ?? [])]).toEqual([0, 151_935, 2 ** 31 - 1]);
  expect(stored?.completionTokenIds).toHaveLength(0);
  expect(stored?.request).toEqual(request);
  expect(stored?.response).toEqual(response);
  expect(stored).toMatchObject({
    reason: 'with \uFFFD and half of \uFFFD inside',
    sampling: { stop: ['\uFFFD', '\\u0000', '\\\uFFFD'] },
  });
  expect(await findTrial(store.db, 'exact')).toMatchObject({
    recorded: 1,
    usedCalls: 1,
    usedTokens: 0,
    exhausted: null,
  });
});

test('a new attempt begins with unused budgets', async () => {
  await openAttempt(store.db, { trialId: 'used' });
  const choice = { completionTokenIds: Int32Array.from([1, 2]), logprobs: Float32Array.from([-1, -1]) };
  const spent = callRecord({
    trialId: 'used',
    status: 'failed',
    reason: 'budget_exhausted: the budget of 2 calls is used up',
  });
  await recordCalls(store.db, [
    callRecord({ trialId: 'used', choice }),
    callRecord({ trialId: 'used', choice }),
    spent,
  ]);
  expect(await findTrial(store.db, 'used')).toMatchObject({
    recorded: 3,
    usedCalls: 2,
    usedTokens: 4,
    exhausted: 'budget_exhausted',
  });
  await openAttempt(store.db, { trialId: 'used', attempt: 2 });
  expect(await findTrial(store.db, 'used')).toMatchObject({
    recorded: 0,
    usedCalls: 0,
    usedTokens: 0,
    exhausted: null,
  });
});

test('deleting a trial removes its calls, except those of a trial that was trained on', async () => {
  await store.db.insert(runs).values({ id: 'run', config: {} });
  await store.db.insert(groups).values({
    id: 'run/0.1/0',
    runId: 'run',
    kind: 'train',
    iteration: 0,
    take: 1,
    ordinal: 0,
    task: 't',
    agent: 'a',
    size: 2,
    policyVersion: 0,
    dropped: 'no_spread',
  });
  for (const trialId of ['trained', 'spare', 'stale', 'flat']) {
    await openAttempt(store.db, { trialId, runId: 'run', groupId: trialId === 'flat' ? 'run/0.1/0' : undefined });
    await recordCalls(store.db, [call(trialId, 1)]);
    await sealAttempt(store.db, { trialId, outcome: trialId === 'stale' ? 'cancelled' : 'scored', final: true });
    if (trialId !== 'spare')
      await store.db.update(trials).set({ batchIteration: 0, batchTake: 1 }).where(eq(trials.id, trialId));
    await deleteTrials(store.db, [trialId]);
    expect(await findTrial(store.db, trialId)).toBeUndefined();
  }
  expect(await readCalls(store.db, { trialId: 'trained', attempt: 1 })).toHaveLength(1);
  for (const trialId of ['spare', 'stale', 'flat'])
    expect(await readCalls(store.db, { trialId, attempt: 1 })).toEqual([]);
});
