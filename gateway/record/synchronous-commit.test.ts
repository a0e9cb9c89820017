import { sql } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { openDatabase } from '../../store/database.ts';
import { ASK, useGatewayOnServer } from '../../tests/support/harness/gateways.ts';

const gateway = useGatewayOnServer();
beforeAll(async () => {
  const { db } = gateway;
  await db.execute(sql`alter database postgres set synchronous_commit = off`);
  await db.execute(
    sql`create function tell_setting() returns trigger language plpgsql as 'begin new.reason := current_setting(''synchronous_commit''); return new; end'`,
  );
  await db.execute(
    sql`create trigger tell_setting before insert on calls for each row execute function tell_setting()`,
  );
});

const OPTIONS = '?options=-c%20synchronous_commit%3Doff%20-c%20statement_timeout%3D55s';

test.each(['', OPTIONS])(
  'PostgreSQL commits a call synchronously, whatever the database’s default and the URL’s options say (%j)',
  async (options) => {
    await gateway.restart({ databaseUrl: gateway.postgres.url + options });
    const trial = await gateway.trial();
    await trial.chat(ASK);
    expect(await trial.calls()).toMatchObject([{ status: 'completed', reason: 'on' }]);
  },
);

test('the settings that Trialgate needs for a PostgreSQL session override the options of the URL, and its other options stay', async () => {
  const db = openDatabase(`${gateway.postgres.url}${OPTIONS}`, {
    settings: '-c synchronous_commit=on -c plan_cache_mode=force_generic_plan',
  });
  const names = ['synchronous_commit', 'plan_cache_mode', 'statement_timeout'];
  const { rows } = await db.execute<{ value: string }>(
    sql.raw(names.map((name) => `select current_setting('${name}') as value`).join(' union all ')),
  );
  await db.$client.end();
  expect(rows.map(({ value }) => value)).toEqual(['on', 'force_generic_plan', '55s']);
});
