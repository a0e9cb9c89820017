import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { until } from '../../tests/support/harness/until.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { oneVerb } from './one-verb.ts';

const store = useDatabase();

test('the connection that keeps other gateways from a run is never silent for long, and they are let in when the verb has ended', async () => {
  const beats = async (): Promise<number> => {
    const { rows } = await store.db.execute(sql`select 1 from pg_stat_activity where query = 'select 1 as beat'`);
    return rows.length;
  };
  const refused = { code: 'bad_input', message: expect.stringContaining('another gateway was asked') };
  const body = async (): Promise<string> => {
    await until(async () => (await beats()) > 0);
    await expect(oneVerb(store.db, 'run', async () => 'second')).rejects.toMatchObject(refused);
    return 'first';
  };
  expect(await oneVerb(store.db, 'run', body, 1)).toBe('first');
  expect(await oneVerb(store.db, 'run', async () => 'next')).toBe('next');
});
