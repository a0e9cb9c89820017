import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { useTemporal } from '../../tests/support/harness/use-temporal.ts';
import { requireFreeRun, startRun } from './start-run.ts';

const environment = useTemporal();
const store = useDatabase();

test('a new run is refused before it starts when its name has a wrong form, or a run in the record or in Temporal has it', async () => {
  const connected = { client: environment.client, db: store.db };
  const config = runConfig.parse({ model: 'm', tasks: [resolve('tasks/train')], iterations: 1 });
  await requireFreeRun(connected, 'free');
  await expect(requireFreeRun(connected, 'a b')).rejects.toThrow(/^run id "a b": use letters/);
  await store.db.insert(runs).values({ id: 'recorded', config });
  await expect(requireFreeRun(connected, 'recorded')).rejects.toMatchObject({
    code: 'bad_input',
    message: 'run recorded exists: choose another --run, or "npx trialgate resume recorded"',
  });
  await expect(requireFreeRun(connected, 'recorded', 'evaluate')).rejects.toThrow('"npx trialgate evaluate recorded"');
  await store.db.insert(runs).values({ id: 'over', config, status: 'completed' });
  await expect(requireFreeRun(connected, 'over')).rejects.toThrow(
    'run over exists and has completed: choose another --run ("npx trialgate show over" shows it)',
  );
  const handle = await startRun(environment.client, 'started', config);
  const refusal = 'run started exists: choose another --run, or "npx trialgate resume started"';
  await expect(startRun(environment.client, 'started', config)).rejects.toThrow(refusal);
  await expect(requireFreeRun(connected, 'started')).rejects.toThrow(refusal);
  await handle.terminate();
});
