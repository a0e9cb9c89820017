import { expect, test } from 'vitest';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { readRun } from './read-run.ts';
import { meantRun } from './unknown-run.ts';

const store = useDatabase();

test('a run that is not there is refused with the name that was probably meant, and with the list of all', async () => {
  await store.db.insert(runs).values([
    { id: 'first', config: {} },
    { id: 'second', config: {} },
  ]);
  await expect(readRun(store.db, 'frist')).rejects.toMatchObject({
    code: 'not_found',
    message: 'there is no run frist (did you mean first?): "npx trialgate show" lists all runs',
  });
  await expect(readRun(store.db, 'another')).rejects.toThrow('there is no run another: "npx trialgate show"');
  expect(await meantRun(store.db, 'first')).toBe('');
});
