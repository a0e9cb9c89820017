import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { openDatabase } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { readWarnings } from './warnings.ts';

const store = useDatabase();

test('`status` names the warnings that it could not read when the database does not answer in time', async () => {
  await store.db
    .insert(runs)
    .values({ id: 'long', config: runConfig.parse({ model: 'm', tasks: ['t'], iterations: 3 }) });
  expect(await readWarnings(store.db)).toEqual([]);
  const impatient = openDatabase(store.postgres.url, { maxConnections: 2, settings: '-c statement_timeout=100' });
  const lock = await store.db.$client.connect();
  try {
    await lock.query('begin; lock table trials in access exclusive mode');
    expect(await readWarnings(impatient)).toEqual([
      expect.stringMatching(
        /^the warnings on slow engines could not be read: canceling statement due to statement timeout/,
      ),
      expect.stringMatching(
        /^the warnings on infrastructure errors could not be read: canceling statement due to statement timeout/,
      ),
      expect.stringMatching(
        /^the warnings on calls that are not trained could not be read: canceling statement due to statement timeout/,
      ),
    ]);
  } finally {
    await lock.query('rollback');
    lock.release();
    await impatient.$client.end();
  }
});
