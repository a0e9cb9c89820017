import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { requestOf } from '../../tests/support/scenarios/protocol-request.ts';
import { openDatabase } from '../../store/database.ts';
import { findTrial, findTrials, type TrialNow } from '../../store/queries/find-trials.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { reserveCall } from '../../store/queries/reserve-call.ts';
import { lockTrial } from '../../store/queries/transaction.ts';
import type { Budgets } from '../../store/schema.ts';
import { expireReservations } from '../../tests/support/harness/expire-reservations.ts';
import { until } from '../../tests/support/harness/until.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { allowance } from './reserve.ts';
import { Counters } from './counters.ts';
import { DEFAULT_SETTINGS } from '../settings.ts';
import { chatCompletions } from '../protocols/openai/chat-completions.ts';
import { Trials } from '../record/trials.ts';

const store = useDatabase();
let trials = 0;

async function trialWith(budgets: Budgets, settings: Partial<typeof DEFAULT_SETTINGS> = {}) {
  const id = `budgets-${++trials}`;
  await openAttempt(store.db, { trialId: id, budgets });
  const reads = { count: 0 };
  const find = (ids: string[]) => {
    reads.count += 1;
    return findTrials(store.db, ids);
  };
  const stopping = new AbortController();
  const deps = {
    db: store.db,
    trials: new Trials(find),
    counters: new Counters(),
    stopping: stopping.signal,
    settings: { ...DEFAULT_SETTINGS, ...settings },
  };
  const now = async (): Promise<TrialNow> => {
    const trial = await findTrial(store.db, id);
    if (!trial) throw new Error('the trial is gone');
    return trial;
  };
  const request = (n: number) =>
    chatCompletions.parse(requestOf({ messages: [{ role: 'user', content: 'Hello' }], n }));
  return {
    id,
    reads,
    stopping,
    counters: deps.counters,
    now,
    ask: async (n = 1) => allowance(deps, await now(), request(n), new AbortController().signal),
    /** Reserves a place as a call under way in another process does. */
    fill: () =>
      reserveCall(store.db, { trialId: id, attempt: 1, callId: crypto.randomUUID(), replies: 1, tokens: null }),
    locker: async () =>
      (await store.db.execute<{ xmax: string }>(sql`select xmax::text from trials where id = ${id}`)).rows[0]?.xmax,
  };
}

test.each([{ calls: 1 }, { tokens: 10 }])(
  'a call that waits for room in a budget does not lock its trial’s row in PostgreSQL: %j',
  async (budgets) => {
    const { id, ask, fill, locker, reads, counters } = await trialWith(budgets);
    await fill();
    const before = await locker();
    const waiting = ask();
    await until(() => reads.count >= 3 && counters.waiting === 1);
    expect(await locker()).toBe(before);
    await expireReservations(store.db, id);
    expect((await waiting).reservation).not.toBeNull();
    expect(counters.waiting).toBe(0);
  },
);

test('a call that waits too long for the part of a budget that another call reserved gets 429 with `Retry-After`', async () => {
  const { ask, fill, counters } = await trialWith({ calls: 1 }, { idleMs: 1 });
  await fill();
  await expect(ask()).rejects.toMatchObject({ status: 429, code: 'budget_reserved', headers: { 'retry-after': '5' } });
  expect(counters.waiting).toBe(0);
});

test('a call that waits for room in a budget gets 503 when its gateway stops', async () => {
  const { ask, fill, stopping, counters } = await trialWith({ calls: 1 });
  await fill();
  const waiting = expect(ask()).rejects.toMatchObject({ status: 503, code: 'shutting_down' });
  await until(() => counters.waiting === 1);
  stopping.abort();
  await waiting;
});

test('a budget reservation that PostgreSQL grants after its call gave up is released', async () => {
  const { id, ask, now } = await trialWith({ calls: 1 }, { storeWaitMs: 50 });
  const beside = openDatabase(store.postgres.url, { maxConnections: 1 });
  await beside.transaction(async (tx) => {
    await lockTrial(tx, id);
    await expect(ask()).rejects.toMatchObject({ code: 'store_unavailable' });
  });
  await beside.$client.end();
  await until(async () => JSON.stringify((await now()).reserved) === '{}');
});

test('a call that asks for more replies than its trial has tokens left is refused, and the trial’s next call is served', async () => {
  const { ask } = await trialWith({ tokens: 10 });
  await expect(ask(16)).rejects.toMatchObject({
    status: 400,
    code: 'too_many_replies',
    headers: { 'x-should-retry': 'false' },
  });
  expect(await ask(10)).toMatchObject({ refusal: null, reservation: { tokens: 10 } });
});
