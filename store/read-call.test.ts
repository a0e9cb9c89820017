import { expect, test } from 'vitest';
import { eq } from 'drizzle-orm';
import { calls } from './schema.ts';
import { openAttempt } from './queries/open-attempt.ts';
import { readCall } from './queries/read-call.ts';
import { readCalls } from './queries/read-calls.ts';
import { TooMuchToRead } from './queries/read-limit.ts';
import { readTurn } from './queries/read-turn.ts';
import { recordCalls } from './queries/record-calls.ts';
import { contentOf } from './calls/content.ts';
import { callRecord } from '../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../tests/support/harness/use-database.ts';

const store = useDatabase();
const user = (content: string) => ({ role: 'user', content });
const reply = (content: string) => ({ choices: [{ message: { role: 'assistant', content } }] });

test('the store reads a call as it was recorded, also when it builds on other calls or shares messages with another branch', async () => {
  await openAttempt(store.db, { trialId: 'trial', attempt: 1 });
  const [one, two, three] = [user('one'), user('two'), user('three')];
  const first = callRecord({ request: { messages: [one] }, response: reply('1') });
  const beside = callRecord({ request: { messages: [two, three] }, response: reply('2') });
  const lists = { messages: [contentOf(one).digest] };
  const base = { callId: first.id, tokenIds: new Int32Array(), lists, text: '' };
  const known = new Set([one, two, three].map((message) => contentOf(message).digest));
  const next = callRecord({ request: { messages: [one, user('four')] }, response: reply('3'), base, known });
  const across = callRecord({ request: { messages: [one, three] }, response: reply('4'), base, known });
  for (const call of [first, beside, next, across]) expect(await recordCalls(store.db, [call])).toEqual(new Set());
  const read = (id: string, attempt = 1, trialId = 'trial') => readCall(store.db, { trialId, attempt, id });
  expect(await read(next.id)).toMatchObject({
    httpStatus: 200,
    request: { messages: [one, user('four')] },
    response: reply('3'),
  });
  expect(await read(across.id)).toMatchObject({ request: { messages: [one, three] }, response: reply('4') });
  expect([await read(next.id, 2), await read(next.id, 1, 'other')]).toEqual([undefined, undefined]);
  for (const { id } of [next, across]) {
    const loaded: Uint8Array[] = [];
    await expect(
      readCall(store.db, { trialId: 'trial', attempt: 1, id }, { maxBytes: 100, onRead: (json) => loaded.push(json) }),
    ).rejects.toThrow(TooMuchToRead);
    expect(loaded).toEqual([]);
  }
});

test('a call that the first release stored, with unknown lists item by item, can be the base of a new call', async () => {
  await openAttempt(store.db, { trialId: 'older', attempt: 1 });
  const request = { model: 'm', messages: [user('one')], x: [{ a: 1 }, { b: 2 }] };
  const older = callRecord({ trialId: 'older', request, response: reply('1') });
  const { fields } = callRecord({ request: { model: 'm' } }).request;
  const stored = {
    ...older,
    request: { ...older.request, fields, lists: { ...older.request.lists, x: request.x.map(contentOf) } },
  };
  const known = new Set([older.request.fields.digest]);
  const next = callRecord({ trialId: 'older', request, response: reply('2'), known });
  for (const call of [stored, next]) expect(await recordCalls(store.db, [call])).toEqual(new Set());
  expect((await readCalls(store.db, { trialId: 'older', attempt: 1 })).map((call) => call.request)).toEqual([
    request,
    request,
  ]);
});

test('the store reads a turn from the known call that it builds on, without the calls before that one', async () => {
  await openAttempt(store.db, { trialId: 'long', attempt: 1 });
  const turns: { id: string; tokenIds: Int32Array; text: string }[] = [];
  for (const prompt of ['a', 'a1 b', 'a1 b2 c']) {
    const before = turns.at(-1);
    const base = before ? { callId: before.id, tokenIds: before.tokenIds, lists: {}, text: before.text } : null;
    const promptTokenIds = Int32Array.from([...(before?.tokenIds ?? []), turns.length]);
    const text = `${turns.length + 1}`;
    const record = callRecord({
      trialId: 'long',
      protocol: 'completions',
      request: { prompt },
      response: { choices: [{ text }] },
      promptTokenIds,
      choice: { completionTokenIds: Int32Array.of(9) },
      base,
    });
    expect(await recordCalls(store.db, [record])).toEqual(new Set());
    turns.push({ id: record.id, tokenIds: Int32Array.from([...promptTokenIds, 9]), text: prompt + text });
  }
  const [first, second, third] = turns;
  if (!first || !second || !third) throw new Error('three calls were recorded');
  expect(await readTurn(store.db, third.id)).toMatchObject({ tokenIds: third.tokenIds, text: third.text });
  await store.db.delete(calls).where(eq(calls.id, first.id));
  expect(await readTurn(store.db, third.id, { ...second, callId: second.id })).toMatchObject({
    tokenIds: third.tokenIds,
    text: third.text,
  });
});
