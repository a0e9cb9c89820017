import { expect, onTestFinished, test, vi } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { noteWait } from '../../store/queries/pool-queue.ts';
import { DEPLOYMENT_POOL, replicas, runs } from '../../store/schema.ts';
import { until } from '../../tests/support/harness/until.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { useTemporal } from '../../tests/support/harness/use-temporal.ts';
import { watchAndPrint } from './train-file.ts';

const environment = useTemporal();
const store = useDatabase();

test('who watches a run reads that it is being prepared, and after Ctrl-C that it goes on and how to watch it again', async () => {
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const said = vi.spyOn(console, 'error').mockReturnValue();
  onTestFinished(() => void vi.restoreAllMocks());
  const stop = new AbortController();
  const connected = { client: environment.client, db: store.db };
  const watching = watchAndPrint(connected, 'soon', {}, stop.signal).catch((error: unknown) => error);
  await until(() => written.mock.calls.some(([text]) => String(text).includes('soon: being prepared')));
  stop.abort();
  expect(await watching).toMatchObject({ name: 'AbortError' });
  expect(said.mock.calls).toEqual([
    [expect.stringMatching(/^run soon goes on: "npx trialgate resume soon" watches it again/)],
  ]);
});

test('who watches a run that waits for the engines of a blocked run reads which run that is, and how to go on', async () => {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
  await store.db.insert(runs).values([
    { id: 'stuck', config, status: 'blocked', reason: 'the disk is full' },
    { id: 'next', config, reason: 'waiting for engine http://e:1, which belongs to run stuck' },
  ]);
  await store.db.insert(replicas).values({ url: 'http://e:1', runId: 'stuck' });
  await noteWait(store.db, 'next', DEPLOYMENT_POOL);
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  vi.spyOn(console, 'error').mockReturnValue();
  onTestFinished(() => void vi.restoreAllMocks());
  const stop = new AbortController();
  const connected = { client: environment.client, db: store.db };
  const watching = watchAndPrint(connected, 'next', {}, stop.signal).catch((error: unknown) => error);
  const said = 'run stuck, which has the engines, is blocked. `npx trialgate resume stuck` goes on with it';
  await until(() => written.mock.calls.some(([text]) => String(text).includes(said)));
  stop.abort();
  await watching;
});
