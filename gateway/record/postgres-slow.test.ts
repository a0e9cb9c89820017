import { sql } from 'drizzle-orm';
import { afterEach, expect, test } from 'vitest';
import { ASK, eventually, readStream, useGateway } from '../../tests/support/harness/gateways.ts';
import { countersOf } from '../../tests/support/harness/counters-of.ts';
import { slowCommits } from '../../tests/support/fakes/slow-commits.ts';

const gateway = useGateway({ settings: { storeWaitMs: 1_000 } });
afterEach(() => gateway.db.execute(sql`drop trigger if exists slow_disk on calls`));

type Trial = Awaited<ReturnType<typeof gateway.trial>>;

/** Runs `body` while nothing can be written to the calls and everything can be read. */
const whileLocked = <T>(body: () => Promise<T>): Promise<T> =>
  gateway.db.transaction(async (tx) => {
    await tx.execute(sql`lock table calls in share row exclusive mode`);
    return body();
  });

/** Returns how a call ended for its agent. */
async function endOf(trial: Trial, body: Record<string, unknown>): Promise<string> {
  const headers = { authorization: `Bearer ${trial.key}`, 'x-stainless-retry-count': '0' };
  const reply = await trial.chat(body, { headers });
  if (body.stream !== true)
    return reply.status === 200 ? 'whole' : `${reply.status} ${(await reply.json()).error.code}`;
  const { done, broken, finish, chunks } = await readStream(reply);
  return done || finish || !broken ? 'whole' : `${reply.status} ${chunks.at(-1)?.error?.code}`;
}

async function samplesOf({ id }: Trial): Promise<unknown[]> {
  const { samples } = (await (await gateway.admin('GET', `/sessions/${id}/samples`)).json()) as { samples: unknown[] };
  return samples;
}

const isSleeping = async () =>
  (
    await gateway.db.execute(
      sql`select 1 from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`,
    )
  ).rows.length > 0;

const statuses = async (trial: Trial) => (await trial.calls()).map((call) => call.status);

test('a call whose commit hangs gets an error after `store_wait_seconds`; if the commit succeeds later, the call becomes failed', async () => {
  const trials = await Promise.all(Array.from({ length: 8 }, () => gateway.trial()));
  const ends = await whileLocked(() =>
    Promise.all(trials.map((trial, i) => endOf(trial, { ...ASK, stream: i % 2 === 1 }))),
  );
  expect(ends).toEqual(trials.map((_, i) => `${i % 2 === 1 ? 200 : 503} store_unavailable`));
  await eventually(async () => (await Promise.all(trials.map(statuses))).every((each) => each.join() === 'failed'));
  expect(countersOf(await gateway.metrics())).toEqual({
    accepted: 8,
    completed: 0,
    failed: 8,
    cancelled: 0,
    inFlight: 0,
  });
  expect((await Promise.all(trials.map(samplesOf))).flat()).toEqual([]);
  await Promise.all(trials.map((trial) => eventually(async () => (await endOf(trial, ASK)) === 'whole')));
});

test('a call that is committed after its agent got an error is recorded as failed and not trained on', async () => {
  const trial = await gateway.trial();
  await slowCommits(gateway.db, 2_000);
  expect(await endOf(trial, ASK)).toBe('503 store_unavailable');
  await eventually(async () => (await trial.calls()).some((call) => call.reason === 'committed_too_late'));
  expect(await statuses(trial)).toEqual(['failed']);
  expect(await samplesOf(trial)).toEqual([]);
  expect(countersOf(await gateway.metrics())).toMatchObject({ accepted: 1, completed: 0, failed: 1, inFlight: 0 });
});

// A late commit shows as completed until it is retracted, and a retry may get its reply in between.
test('a client’s retry never gets a reply whose call is retracted afterwards', async () => {
  const trial = await gateway.trial();
  await gateway.db.execute(
    sql`create or replace function slow_disk() returns trigger language plpgsql as 'begin perform pg_sleep(2); return new; end'`,
  );
  await gateway.db.execute(
    sql`create trigger slow_disk before update on calls for each row execute function slow_disk()`,
  );
  expect(await whileLocked(() => endOf(trial, ASK))).toBe('503 store_unavailable');
  await eventually(isSleeping);
  const headers = { authorization: `Bearer ${trial.key}`, 'x-stainless-retry-count': '1' };
  const reply = await eventually(async () => {
    const tried = await trial.chat(ASK, { headers });
    return tried.status === 200 ? tried : null;
  });
  await eventually(async () => !(await isSleeping()));
  const answered = (await trial.calls()).find((call) => call.id === reply.headers.get('x-trialgate-call'));
  expect(answered).toMatchObject({ status: 'completed' });
});
