import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDatabase, type Database } from './database.ts';
import { disownCalls } from './queries/disown-calls.ts';
import { openAttempt } from './queries/open-attempt.ts';
import { readTrainableCalls } from './queries/read-trainable-calls.ts';
import { recordCalls } from './queries/record-calls.ts';
import { callRecord } from './testing/call-record.ts';
import { TestPostgres } from './testing/postgres.ts';

let postgres: TestPostgres;
let db: Database;
beforeAll(async () => {
  postgres = await TestPostgres.create();
  db = openDatabase(postgres.url);
}, 60_000);
afterAll(async () => {
  await db.$client.end();
  await postgres.close();
});

test('the further replies of a call that is taken back are trained on', async () => {
  const at = { trialId: 'trial', attempt: 1 };
  await openAttempt(db, at);
  const sampled = { completionTokenIds: Int32Array.of(2), logprobs: Float32Array.of(-1) };
  const call = callRecord({ ...at, promptTokenIds: Int32Array.of(1), choice: sampled });
  const [first] = call.choices;
  await recordCalls(db, [{ ...call, choices: [first, { ...first, id: crypto.randomUUID() }] }]);
  expect(await readTrainableCalls(db, at)).toHaveLength(2);
  await disownCalls(db, [call.id]);
  expect(await readTrainableCalls(db, at)).toEqual([]);
});
