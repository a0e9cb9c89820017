import { getEventListeners } from 'node:events';
import { Client } from '@temporalio/client';
import { expect, onTestFinished, test, vi } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { openDatabase } from '../../store/database.ts';
import { noteWait } from '../../store/queries/pool-queue.ts';
import { DEPLOYMENT_POOL, iterations, policyVersions, replicas, runs } from '../../store/schema.ts';
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

/** Asks Temporal as any client does, and counts its questions. */
class CountingClient extends Client {
  asked = 0;
  override withDeadline<R>(deadline: number | Date, question: () => Promise<R>): Promise<R> {
    this.asked += 1;
    return super.withDeadline(deadline, question);
  }
}

test('a long watching keeps no listener for each of its questions', async () => {
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  vi.spyOn(console, 'error').mockReturnValue();
  onTestFinished(() => void vi.restoreAllMocks());
  const stop = new AbortController();
  const client = new CountingClient({ connection: environment.client.connection });
  const watching = watchAndPrint({ client, db: store.db }, 'long', {}, stop.signal).catch(() => {});
  await until(() => client.asked >= 6);
  expect(getEventListeners(stop.signal, 'abort').length).toBeLessThanOrEqual(2);
  stop.abort();
  await watching;
});

/** A client of a Temporal that never answers. */
class UnansweredClient extends Client {
  override withDeadline<R>(): Promise<R> {
    return new Promise(() => {});
  }
}

test('who watches a run whose deployment has stopped reads so, and a signal ends the watching without an answer', async () => {
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  vi.spyOn(console, 'error').mockReturnValue();
  onTestFinished(() => void vi.restoreAllMocks());
  const db = openDatabase(store.postgres.url, { maxConnections: 1 });
  await db.$client.end();
  const stop = new AbortController();
  const client = new UnansweredClient({ connection: environment.client.connection });
  const watching = watchAndPrint({ client, db }, 'left', {}, stop.signal).catch((error: unknown) => error);
  await until(() => written.mock.calls.some(([text]) => String(text).includes('left: its deployment does not answer')));
  stop.abort();
  expect(await watching).toMatchObject({ name: 'AbortError' });
});

const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });

/** Watches a run of this name and status to its end. Returns what was printed. */
async function watched(
  id: string,
  status: 'completed' | 'blocked',
  { isTrained = false, ...options }: Parameters<typeof watchAndPrint>[2] & { isTrained?: boolean } = {},
) {
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const said = vi.spyOn(console, 'error').mockReturnValue();
  const printed = vi.spyOn(console, 'log').mockReturnValue();
  await store.db.insert(runs).values({ id, config, status, reason: 'no reward' });
  if (isTrained) {
    const take = { runId: id, iteration: 0, take: 1 };
    await store.db.insert(iterations).values({ ...take, status: 'done', policyVersion: 0, trainedVersion: 1 });
    const made = {
      version: 1,
      stepKey: 'k',
      checkpoint: '/c',
      checkpointSha256: 's',
      canary: { token_ids: [], logprobs: [] },
    };
    await store.db.insert(policyVersions).values({ ...take, ...made });
  }
  const connected = { client: environment.client, db: store.db };
  await watchAndPrint(connected, id, options, new AbortController().signal).catch(() => {});
  const found = { said: said.mock.calls.flat(), printed: printed.mock.calls.flat() };
  vi.restoreAllMocks();
  return found;
}

test('who watched a run to its end reads its table and the next commands, of which one needs a trained version', async () => {
  const { said, printed } = await watched('untrained', 'completed');
  expect(printed).toEqual(['no iteration yet']);
  expect(said).toEqual(['next: npx trialgate open untrained (curves and transcripts)']);
  const trained = await watched('trained', 'completed', { isTrained: true });
  expect(trained.printed).toEqual([expect.stringContaining('pass rate')]);
  expect(trained.said).toEqual([
    'next: npx trialgate open trained (curves and transcripts), npx trialgate export trained FOLDER (the trained model)',
  ]);
});

test('no next command is named with --json, when the deployment stops afterwards, or when the run did not complete', async () => {
  const { said, printed } = await watched('as-json', 'completed', { json: true });
  expect(said).toEqual([]);
  expect(JSON.parse(String(printed[0]))).toMatchObject({ run: 'as-json' });
  expect((await watched('stops', 'completed', { stopsAfterwards: true })).said).toEqual([]);
  expect((await watched('stuck', 'blocked')).said).toEqual([]);
});

test('who watches a run that waits for the engines of a blocked run reads which run that is, and how to go on', async () => {
  await store.db.insert(runs).values([
    { id: 'holder', config, status: 'blocked', reason: 'the disk is full' },
    {
      id: 'next',
      config,
      reason: 'waiting for engine http://e:1: run holder has it until that run ends or releases it',
    },
  ]);
  await store.db.insert(replicas).values({ url: 'http://e:1', runId: 'holder' });
  await noteWait(store.db, 'next', DEPLOYMENT_POOL);
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  vi.spyOn(console, 'error').mockReturnValue();
  onTestFinished(() => void vi.restoreAllMocks());
  const stop = new AbortController();
  const connected = { client: environment.client, db: store.db };
  const watching = watchAndPrint(connected, 'next', {}, stop.signal).catch((error: unknown) => error);
  const said = 'run holder, which has the engines, is blocked. `npx trialgate resume holder` goes on with it';
  await until(() => written.mock.calls.some(([text]) => String(text).includes(said)));
  stop.abort();
  await watching;
});
