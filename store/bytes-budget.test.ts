import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { findTrial } from './queries/find-trials.ts';
import { openAttempt } from './queries/open-attempt.ts';
import { recordCalls, type CallRecord } from './queries/record-calls.ts';
import { callRecord } from '../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../tests/support/harness/use-database.ts';
import { ROW_BYTES } from './trial-bytes.ts';

const store = useDatabase();
let trials = 0;

async function trial(bytes: number) {
  const trialId = `bytes-${++trials}`;
  await openAttempt(store.db, { trialId, budgets: { bytes } });
  return {
    trialId,
    call: (given: Parameters<typeof callRecord>[0] = {}) => callRecord({ trialId, ...given }),
    used: async () => (await findTrial(store.db, trialId))?.usedBytes,
    stored: async () => {
      const columns = ['digest', 'request', 'response', 'prompt_token_ids', 'completion_token_ids', 'logprobs']
        .map((name) => `coalesce(length(${name}), 0)`)
        .join(' + ');
      const { rows } = await store.db.execute<{ bytes: number }>(
        sql`select sum(${sql.raw(columns)} + ${ROW_BYTES})::int as bytes from calls where trial_id = ${trialId}`,
      );
      return rows[0]?.bytes;
    },
  };
}

function withReplies(call: CallRecord, count: number): CallRecord {
  const [first] = call.choices;
  const more = Array.from({ length: count - 1 }, () => ({
    ...first,
    id: randomUUID(),
    completionTokenIds: new Int32Array(10),
    logprobs: new Float32Array(10),
  }));
  return { ...call, choices: [first, ...more] };
}

test('the bytes that the store counts for a trial are those that it stores, also after a repeated commit', async () => {
  const { call, used, stored } = await trial(10 ** 6);
  const calls = [
    call({
      request: { messages: [{ role: 'user', content: 'é🦀'.repeat(50) }] },
      digest: new Uint8Array(32),
      promptTokenIds: new Int32Array(100),
      response: { choices: [{ index: 0 }] },
    }),
    withReplies(call(), 3),
  ];
  expect(await recordCalls(store.db, calls)).toEqual(new Set());
  expect(await recordCalls(store.db, calls)).toEqual(new Set());
  expect(await used()).toBe(await stored());
});

test('the several replies to one request are stored all together or not at all', async () => {
  const { call, used } = await trial(6 * ROW_BYTES);
  const one = call();
  expect(await recordCalls(store.db, [withReplies(one, 8)])).toEqual(new Set([one.id]));
  expect(await used()).toBe(0);
  expect(await recordCalls(store.db, [withReplies(one, 4)])).toEqual(new Set());
});

test('when several calls share a commit, those that fit the budget of bytes are stored, and a refused one uses up the rest', async () => {
  const { call, used } = await trial(3.5 * ROW_BYTES);
  const calls = [call(), call(), call(), call()];
  expect(await recordCalls(store.db, calls)).toEqual(new Set([calls[3]?.id]));
  const filling = call({ status: 'failed', reason: 'budget_exhausted: bytes', fillsBytes: true });
  expect(await recordCalls(store.db, [filling])).toEqual(new Set());
  expect(await findTrial(store.db, filling.trialId)).toMatchObject({ exhausted: 'budget_exhausted' });
  expect(await used()).toBeGreaterThanOrEqual(3.5 * ROW_BYTES);
  expect((await recordCalls(store.db, [call()])).size).toBe(1);
});
