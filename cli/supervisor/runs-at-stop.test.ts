import { createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { resolveConfig } from '../config/resolve.ts';
import type { Asked } from '../options.ts';
import { runsAtStop } from './runs-at-stop.ts';
import { startStack, type Stack } from './stack.ts';

const store = useDatabase();
let home = '';
let stack: Stack;
beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'trialgate-down-'));
  const { config } = resolveConfig({ cwd: home, env: {}, flags: { home, engine_args: '--a b' } });
  const components = () => ({ components: [], notes: [] });
  stack = await startStack({ config, components }, new AbortController().signal);
});
afterAll(async () => {
  await stack.stop();
  rmSync(home, { recursive: true });
});

const stopping = (database_url: string): Asked => ({
  ...resolveConfig({ cwd: home, env: { TRIALGATE_HOME: home, TRIALGATE_DATABASE_URL: database_url } }),
  flags: {},
  file: undefined,
});

test('a stop says which runs it stops in the middle, and how they go on: with the settings that only the last start had', async () => {
  expect(await runsAtStop(stopping(store.postgres.url))).toEqual([]);
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
  await store.db.insert(runs).values([
    { id: 'first', config, createdAt: new Date(1) },
    { id: 'second', config, createdAt: new Date(2) },
    { id: 'stuck', config, status: 'blocked' },
    { id: 'over', config, status: 'completed' },
  ]);
  expect(await runsAtStop(stopping(store.postgres.url))).toEqual([
    "stopped in the middle: run first, run second. `npx trialgate up --engine-args '--a b'` goes on with them",
    "blocked: run stuck. After `npx trialgate up --engine-args '--a b'`, `npx trialgate resume stuck` goes on with it",
  ]);
});

test('a stop does not wait for a store that does not answer, and does not fail without one', async () => {
  const silent = createServer().listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  expect(await runsAtStop(stopping(`postgres://a:b@127.0.0.1:${port}/c`), 10)).toEqual([]);
  silent.close();
  expect(await runsAtStop(stopping('postgres://a:b@127.0.0.1:1/c'))).toEqual([]);
});
