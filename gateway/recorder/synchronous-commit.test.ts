import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { ASK, useGateway } from '../testing/harness.ts';

const gateway = useGateway();

test('a reply ends before its call is on disk where that is the database’s default', async () => {
  const { db } = gateway;
  await db.execute(sql`alter database postgres set synchronous_commit = off`);
  await db.execute(sql`create function tell_setting() returns trigger language plpgsql as 'begin new.reason := current_setting(''synchronous_commit''); return new; end'`);
  await db.execute(sql`create trigger tell_setting before insert on calls for each row execute function tell_setting()`);
  await gateway.gateway.close();
  await gateway.start();
  const trial = await gateway.trial();
  await trial.chat(ASK);
  expect(await trial.calls()).toMatchObject([{ status: 'completed', reason: 'on' }]);
});
