import { expect, onTestFinished, test, vi } from 'vitest';
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
