import { expect, test } from 'vitest';
import { retractCalls } from './queries/retract-calls.ts';
import { findTrial } from './queries/find-trials.ts';
import { openAttempt } from './queries/open-attempt.ts';
import { readTrainableCalls } from './queries/read-trainable-calls.ts';
import { readCalls } from './queries/read-calls.ts';
import { recordCalls, type CallRecord } from './queries/record-calls.ts';
import { callRecord } from '../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../tests/support/harness/use-database.ts';

const store = useDatabase();

const sampled = { completionTokenIds: Int32Array.of(2), logprobs: Float32Array.of(-1) };
/** A call with two replies. */
function twoReplies(given: Parameters<typeof callRecord>[0]): CallRecord {
  const call = callRecord({ promptTokenIds: Int32Array.of(1), choice: sampled, ...given });
  const [first] = call.choices;
  return { ...call, choices: [first, { ...first, id: crypto.randomUUID() }] };
}

test('a retracted call gives its part of its trial’s budgets back exactly once', async () => {
  const at = { trialId: 'used', attempt: 1 };
  await openAttempt(store.db, at);
  const [late, kept, failed] = [
    twoReplies(at),
    twoReplies(at),
    callRecord({ ...at, status: 'failed', choice: sampled }),
  ];
  await recordCalls(store.db, [late, kept, failed]);
  expect(await findTrial(store.db, 'used')).toMatchObject({ usedCalls: 2, usedTokens: 5 });
  for (let i = 0; i < 2; i++) await retractCalls(store.db, [late.id, failed.id]);
  expect(await findTrial(store.db, 'used')).toMatchObject({ recorded: 5, usedCalls: 1, usedTokens: 2 });
  await openAttempt(store.db, { trialId: 'used', attempt: 2 });
  await retractCalls(store.db, [kept.id]);
  expect(await findTrial(store.db, 'used')).toMatchObject({ attempt: 2, usedCalls: 0, usedTokens: 0 });
});

test('each of several replies to one request is read back with the complete request, empty fields included', async () => {
  const at = { trialId: 'empty', attempt: 1 };
  await openAttempt(store.db, at);
  const request = { messages: [{ role: 'user', content: 'x' }], stop: null, tools: [], user: '' };
  await recordCalls(store.db, [twoReplies({ ...at, request })]);
  expect((await readCalls(store.db, at)).map((call) => call.request)).toEqual([request, request]);
});

test('a retracted call is not trained on, and neither are the other replies to its request', async () => {
  const at = { trialId: 'trial', attempt: 1 };
  await openAttempt(store.db, at);
  const call = twoReplies(at);
  await recordCalls(store.db, [call]);
  expect(await readTrainableCalls(store.db, at)).toHaveLength(2);
  await retractCalls(store.db, [call.id]);
  expect(await readTrainableCalls(store.db, at)).toEqual([]);
});
