import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { ASK, eventually, readStream, useGatewayOnServer } from '../../tests/support/harness/gateways.ts';

const gateway = useGatewayOnServer();
const STREAM = { ...ASK, stream: true };

test.each([false, true])(
  'an agent gets an error instead of a reply’s end when PostgreSQL rejects the record (stream: %s)',
  async (stream) => {
    const trial = await gateway.trial();
    await gateway.db.execute(sql`alter table calls add constraint full_disk check (false) not valid`);
    try {
      const reply = await trial.chat({ ...ASK, stream });
      if (stream) {
        const { finish, done, broken, chunks } = await readStream(reply);
        expect({ finish, done, broken }).toEqual({ finish: undefined, done: false, broken: true });
        expect(chunks.at(-1)?.error?.code).toBe('not_recorded');
      } else {
        expect([reply.status, (await reply.json()).error.code]).toEqual([500, 'not_recorded']);
      }
    } finally {
      await gateway.db.execute(sql`alter table calls drop constraint full_disk`);
    }
  },
);

test.each([false, true])(
  'a call is answered and recorded although PostgreSQL restarts during it (stream: %s)',
  async (stream) => {
    const trial = await gateway.trial();
    gateway.engine.beforeEnd = () => gateway.postgres.stop('kill');
    const answering = trial
      .chat({ ...ASK, stream })
      .then(async (reply) => ({ status: reply.status, text: await reply.text() }));
    await eventually(() => gateway.engine.seen.length > 0);
    await new Promise((resolve) => setTimeout(resolve, 300));
    await gateway.postgres.start();
    const { status, text } = await answering;
    expect(status).toBe(200);
    expect(text).toMatch(/"finish_reason":"stop"/);
    expect(await trial.calls()).toMatchObject([{ status: 'completed' }]);
  },
);

test.each([false, true])(
  'a call waits while PostgreSQL is read-only, and is recorded after that (stream: %s)',
  async (stream) => {
    const setReadOnly = async (value: 'on' | 'off') => {
      const client = await gateway.db.$client.connect();
      await client.query('set default_transaction_read_only = off');
      await client.query(`alter system set default_transaction_read_only = ${value}`);
      await client.query('select pg_reload_conf()');
      client.release(true);
    };
    const trial = await gateway.trial();
    gateway.engine.beforeEnd = () => setReadOnly('on');
    const answering = trial
      .chat({ ...ASK, stream })
      .then(async (reply) => ({ status: reply.status, text: await reply.text() }));
    await eventually(() => gateway.engine.seen.length > 0);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    await setReadOnly('off');
    expect(await answering).toMatchObject({ status: 200, text: expect.stringMatching(/"finish_reason":"stop"/) });
    expect(await trial.calls()).toMatchObject([{ status: 'completed' }]);
  },
);

test('when PostgreSQL stays away, an agent gets an error in time instead of a reply’s end', async () => {
  await gateway.restart({ settings: { storeWaitMs: 1_500 } });
  const trial = await gateway.trial();
  gateway.engine.beforeEnd = () => gateway.postgres.stop();
  const stream = await readStream(await trial.chat(STREAM));
  expect(stream).toMatchObject({ finish: undefined, done: false, broken: true });
  expect(stream.chunks.at(-1)?.error?.code).toBe('store_unavailable');
  gateway.engine.beforeEnd = () => {};
  const reply = await trial.chat(ASK);
  expect(reply.status).toBe(503);
  expect((await reply.json()).error.code).toBe('store_unavailable');
  expect(gateway.log.join('\n')).toContain('could not be recorded in time');
  await gateway.postgres.start();
  // PostgreSQL may need longer than the short `storeWaitMs` for its first answer, so the agent tries again.
  await eventually(async () => (await trial.chat(ASK)).status === 200);
  const calls = await trial.calls();
  expect(calls.filter((call) => call.status === 'completed')).toHaveLength(1);
});
