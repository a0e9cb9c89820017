import { sql } from 'drizzle-orm';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findTrial } from '../../../store/queries/find-trials.ts';
import type { GatewaySettings } from '../../settings.ts';
import { ASK, eventually, readStream, TestGateway, useSharedGateway } from '../../../tests/support/harness/gateways.ts';
import { expireReservations } from '../../../tests/support/harness/expire-reservations.ts';

const gateway = useSharedGateway();
let other: TestGateway;
/** Starts another process, or in workerd another isolate. */
const startOther = async (settings: Partial<GatewaySettings> = {}) => {
  const { postgres, db, engine } = gateway;
  other = Object.assign(new TestGateway(), { postgres, db, engine });
  await other.start({ settings });
};
beforeEach(() => startOther());
afterEach(() => other.gateway.close());

type Trial = Awaited<ReturnType<typeof gateway.trial>>;
const ask = (through: TestGateway, { id, key }: Trial, more: object = {}) => through.chat(id, key, { ...ASK, ...more });
/** Sends calls to both gateways in turn. */
const burst = (count: number, trial: Trial, more: object = {}) =>
  Array.from({ length: count }, (_, i) => ask(i % 2 === 0 ? gateway : other, trial, more));
const endOf = async (reply: Response): Promise<unknown> =>
  reply.status === 200 ? (await reply.json()).choices[0].finish_reason : reply.status;
const limits = () => gateway.engine.seen.map(({ body }) => body.max_tokens);
const session = async (id: string): Promise<unknown> => (await gateway.admin('GET', `/sessions/${id}`)).json();

test.each([
  { budgetEnd: 'length' as const, end: 'length' },
  { budgetEnd: 'refuse' as const, end: 429 },
])(
  'a trial’s calls through two gateways together stay within its budget of calls (end: $budgetEnd)',
  async ({ budgetEnd, end }) => {
    await Promise.all([gateway, other].map((each) => each.gateway.close()));
    await gateway.start({ settings: { budgetEnd } });
    await startOther({ budgetEnd });
    const trial = await gateway.trial({ budgets: { calls: 3 } });
    const released = Promise.withResolvers<void>();
    gateway.engine.beforeEnd = () => released.promise;
    const replies = burst(10, trial);
    await eventually(() => gateway.engine.seen.length === 3);
    released.resolve();
    const ends = await Promise.all(replies.map(async (reply) => endOf(await reply)));
    expect(ends.toSorted()).toEqual([...Array(7).fill(end), ...Array(3).fill('stop')].toSorted());
    expect(gateway.engine.seen).toHaveLength(3);
    expect(await session(trial.id)).toMatchObject({ exhausted: 'budget_exhausted', usage: { calls: 3 } });
    expect((await findTrial(gateway.db, trial.id))?.reserved).toEqual({});
  },
);

test('a trial’s calls through two gateways together use its budget of tokens to the end and no further', async () => {
  const trial = await gateway.trial({ budgets: { tokens: 12 } });
  const ends = await Promise.all(burst(8, trial, { max_tokens: 5 }).map(async (reply) => endOf(await reply)));
  expect(ends.filter((end) => end === 'stop')).toHaveLength(2);
  expect(limits()).toEqual([5, 5, 2]);
  expect(await session(trial.id)).toMatchObject({ exhausted: 'budget_exhausted', usage: { calls: 3, tokens: 12 } });
});

test.each([false, true])(
  'a reply cut by its trial’s last tokens exhausts the budget, and one cut by its own `max_tokens` does not (stream: %s)',
  async (stream) => {
    const [short, enough] = [
      await gateway.trial({ budgets: { tokens: 3 } }),
      await gateway.trial({ budgets: { tokens: 30 } }),
    ];
    expect(await (await short.chat({ ...ASK, stream })).text()).toContain('"length"');
    expect(await session(short.id)).toMatchObject({ exhausted: 'budget_exhausted', usage: { calls: 1, tokens: 3 } });
    expect(await (await enough.chat({ ...ASK, stream, max_tokens: 3 })).text()).toContain('"length"');
    expect(await session(enough.id)).toMatchObject({ exhausted: null, usage: { calls: 1, tokens: 3 } });
  },
);

test('tokens of a budget that a call reserved and did not sample are free for the next call', async () => {
  const trial = await gateway.trial({ budgets: { tokens: 20 } });
  const replies = await Promise.all(burst(3, trial));
  expect(await Promise.all(replies.map(endOf))).toEqual(['stop', 'stop', 'stop']);
  expect(limits()).toEqual([20, 15, 10]);
  expect(await session(trial.id)).toMatchObject({ exhausted: null, usage: { tokens: 15 } });
});

test('a call that waits for room in a budget proceeds when the call before it fails', async () => {
  await gateway.restart({ settings: { idleMs: 400 } });
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  gateway.engine.fault = 'hang';
  const first = await ask(gateway, trial, { stream: true });
  await eventually(() => gateway.engine.seen.length === 1);
  gateway.engine.fault = 'none';
  const second = ask(other, trial);
  expect(await readStream(first)).toMatchObject({ broken: true, done: false });
  expect(await endOf(await second)).toBe('stop');
  expect(await session(trial.id)).toMatchObject({ exhausted: null, usage: { calls: 1 } });
});

test('a call whose budget reservation expired and went to another call is refused and not recorded', async () => {
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  const released = Promise.withResolvers<void>();
  let ending = 0;
  gateway.engine.beforeEnd = () => (ending++ === 0 ? released.promise : undefined);
  const late = ask(gateway, trial);
  await eventually(() => ending === 1);
  await expireReservations(gateway.db, trial.id);
  expect(await endOf(await ask(other, trial))).toBe('stop');
  released.resolve();
  const refused = await late;
  expect([refused.status, (await refused.json()).error.code]).toEqual([503, 'reservation_lost']);
  expect(await trial.calls()).toHaveLength(1);
  expect(await session(trial.id)).toMatchObject({ usage: { calls: 1 } });
});

test('a call that waits for room in a budget ends when its agent hangs up', async () => {
  await other.gateway.close();
  await startOther({ maxCallsInFlight: 1, idleMs: 120_000 });
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  const released = Promise.withResolvers<void>();
  let ending = 0;
  gateway.engine.beforeEnd = () => (ending++ === 0 ? released.promise : undefined);
  const first = ask(gateway, trial);
  await eventually(() => ending === 1);
  const leaving = new AbortController();
  const left = other.chat(trial.id, trial.key, ASK, { signal: leaving.signal });
  await eventually(async () => (await other.metrics()).trialgate_calls_waiting === 1);
  leaving.abort();
  await expect(left).rejects.toThrow();
  // It is admitted once the call that left is gone.
  await eventually(async () => (await other.chat(trial.id, trial.key, '{')).status === 400);
  expect(gateway.engine.seen).toHaveLength(1);
  await expireReservations(gateway.db, trial.id);
  expect(await endOf(await ask(other, trial))).toBe('stop');
  expect(gateway.engine.seen).toHaveLength(2);
  released.resolve();
  expect((await first).status).toBe(503);
});

test('a call that waits for room in a budget gets 409 when its attempt is replaced', async () => {
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  const released = Promise.withResolvers<void>();
  gateway.engine.beforeEnd = () => released.promise;
  const first = ask(gateway, trial);
  await eventually(() => gateway.engine.seen.length === 1);
  const waiting = ask(other, trial);
  await eventually(async () => (await other.metrics()).trialgate_calls_waiting === 1);
  await gateway.trial({ trialId: trial.id, attempt: 2, budgets: { calls: 1 } });
  expect((await waiting).status).toBe(409);
  released.resolve();
  expect((await first).status).toBe(409);
  expect(gateway.engine.seen).toHaveLength(1);
});

test('a call that takes long renews its budget reservation', async () => {
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  const released = Promise.withResolvers<void>();
  gateway.engine.beforeEnd = () => released.promise;
  const long = ask(gateway, trial);
  await eventually(() => gateway.engine.seen.length === 1);
  await expireReservations(gateway.db, trial.id);
  const until = async () => Object.values((await findTrial(gateway.db, trial.id))?.reserved ?? {})[0]?.until;
  await eventually(async () => ((await until()) ?? 0) > 0);
  expect(await until()).toBeGreaterThan(Date.now() / 1000);
  released.resolve();
  expect(await endOf(await long)).toBe('stop');
});

test('a call that cannot be recorded releases its budget reservation', async () => {
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  await gateway.db.execute(
    sql`create or replace function no_call() returns trigger language plpgsql as 'begin raise ''no call''; end'`,
  );
  await gateway.db.execute(sql`create trigger no_call before insert on calls for each row execute function no_call()`);
  expect(await endOf(await ask(gateway, trial))).toBe(500);
  await gateway.db.execute(sql`drop trigger no_call on calls`);
  await eventually(async () => JSON.stringify((await findTrial(gateway.db, trial.id))?.reserved) === '{}');
});

test('a call whose conversation cannot be read from the store releases its budget reservation', async () => {
  const trial = await gateway.trial({ budgets: { calls: 2 } });
  await ask(gateway, trial);
  await gateway.db.execute(sql`alter table calls rename to calls_away`);
  expect(await endOf(await ask(other, trial))).toBe(500);
  await gateway.db.execute(sql`alter table calls_away rename to calls`);
  await eventually(async () => JSON.stringify((await findTrial(gateway.db, trial.id))?.reserved) === '{}');
  expect(gateway.engine.seen).toHaveLength(1);
});

test('a call reserves nothing if its trial has no budget of calls and none of tokens', async () => {
  const trial = await gateway.trial({ budgets: { seconds: 100, prompt_tokens: 100 } });
  await gateway.db.execute(
    sql`create or replace function no_reservation() returns trigger language plpgsql as 'begin if new.reserved is not null then raise ''reserved''; end if; return new; end'`,
  );
  await gateway.db.execute(
    sql`create trigger no_reservation before update on trials for each row execute function no_reservation()`,
  );
  expect(await endOf(await ask(gateway, trial))).toBe('stop');
  await gateway.db.execute(sql`drop trigger no_reservation on trials`);
});
