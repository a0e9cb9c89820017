import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { resolveConfig } from '../config/resolve.ts';
import { howRunsGoOn, runsAtStop } from './runs-at-stop.ts';
import type { StackState } from './state.ts';

const store = useDatabase();
const LONG_MS = 60_000;
const at = (database_url: string) =>
  resolveConfig({ cwd: '/', env: { TRIALGATE_HOME: '/nowhere', TRIALGATE_DATABASE_URL: database_url } });
const asked = { ...at('postgres://127.0.0.1:1/c'), flags: {}, file: undefined };
const running: StackState = {
  ...{
    supervisor: { pid: 1, ticks: 1 },
    status: 'ready',
    failure: null,
    ports: {},
    engines: [],
    ranks: null,
    notes: [],
  },
  ...{ components: [], settings: { engine_args: ['--a', 'b'] } },
};

test('a stop says which runs it stops in the middle, and how they go on: with the settings that only the last start had', async () => {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
  await store.db.insert(runs).values([
    { id: 'first', config, createdAt: new Date(1) },
    { id: 'second', config, createdAt: new Date(2) },
    { id: 'stuck', config, status: 'blocked' },
    { id: 'over', config, status: 'completed' },
  ]);
  const open = await runsAtStop(at(store.postgres.url).config, LONG_MS);
  const up = "`npx trialgate up --engine-args '--a b'`";
  const stuck = `blocked: run stuck; after ${up}, \`npx trialgate resume stuck\` goes on with it`;
  expect(howRunsGoOn(asked, running, open)).toEqual([
    `stopped in the middle: run first, run second. ${up} goes on with them`,
    stuck,
  ]);
  expect(howRunsGoOn(asked, running, [])).toEqual([]);
  // It was stopped while it started.
  const { settings, ...starting } = running;
  expect(howRunsGoOn(asked, { ...starting, settings: null, ready_settings: settings ?? {} }, open).at(-1)).toBe(stuck);
});

test('a stop of a quickstart says that its own run is cancelled, and that a resume goes on with it', () => {
  const state: StackState = { ...running, settings: null, cancels_its_run: true };
  expect(howRunsGoOn(asked, state, [{ id: 'mine', status: 'running' }])).toEqual([
    'stopped in the middle: run mine. `npx trialgate up` goes on with it, but for the run of the quickstart itself, which is cancelled: `npx trialgate resume` of it goes on',
  ]);
});

test('a stop does not wait for a store that does not answer, and does not fail without one', async () => {
  const silent = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void silent.close());
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  expect(await runsAtStop(at(`postgres://a:b@127.0.0.1:${port}/c`).config, 10)).toEqual([]);
  expect(await runsAtStop(at('postgres://a:b@127.0.0.1:1/c').config, LONG_MS)).toEqual([]);
});
