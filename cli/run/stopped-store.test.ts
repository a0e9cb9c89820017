import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { openDatabase } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';
import { temporaryDeployment, type TemporaryDeployment } from '../../tests/support/harness/temporary-deployment.ts';
import { EXIT } from '../exit.ts';
import { homeFolders, INSTALLS } from '../folders.ts';
import { show } from '../show/show.ts';
import { postgresHome } from '../supervisor/components/postgres-home.ts';
import { startStack } from '../supervisor/stack.ts';
import { withStore } from './connect.ts';

let deployment: TemporaryDeployment;
const never = new AbortController().signal;
const start = () => startStack({ config: deployment.config, only: ['postgres'] }, never);
const stateFile = () => readFileSync(homeFolders(deployment.home).state, 'utf8');
/** PostgreSQL has this file while it runs. */
const isRunning = () => existsSync(join(postgresHome(deployment.home).data, 'postmaster.pid'));

beforeAll(async () => {
  deployment = await temporaryDeployment();
  const stack = await start();
  const db = openDatabase(stack.plan.databaseUrl);
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
  await db.insert(runs).values([
    { id: 'alive', config },
    { id: 'stuck', config, status: 'blocked', reason: 'the disk is full' },
    { id: 'over', config, status: 'failed', reason: 'no such model' },
  ]);
  await db.$client.end();
  await stack.stop();
});
afterAll(() => deployment.remove());

test('`show` of a stopped deployment reads its store, says how its runs go on, and leaves nothing running or recorded', async () => {
  const before = stateFile();
  const [alive, stuck, over, all] = await withStore(deployment.config, (db, isStopped) =>
    Promise.all(['alive', 'stuck', 'over', undefined].map((id) => show(db, id, false, async () => null, isStopped))),
  );
  expect(alive).toContain('run alive: running\n\nits deployment is stopped: `npx trialgate up` goes on with it\n\n');
  expect(stuck).toContain(
    'run stuck: blocked (the disk is full)\n\nits deployment is stopped: `npx trialgate up`, then `npx trialgate resume stuck` goes on with it',
  );
  expect(over).toMatch(/^run over: failed \(no such model\)\n\nno iteration yet/);
  expect(all).toMatch(/the deployment is stopped: `npx trialgate up` goes on/);
  expect(isRunning()).toBe(false);
  expect(stateFile()).toBe(before);
});

test('while a command reads a stopped deployment’s store, other commands and a start of the deployment wait for its end', async () => {
  const reading = Promise.withResolvers<void>();
  const mayEnd = Promise.withResolvers<void>();
  const order: string[] = [];
  const count = (name: string) => async (db: Parameters<Parameters<typeof withStore>[1]>[0]) => {
    order.push(name);
    return db.$count(runs);
  };
  const first = withStore(deployment.config, async (db) => {
    reading.resolve();
    await mayEnd.promise;
    return count('first')(db);
  });
  await reading.promise;
  const others = [start(), withStore(deployment.config, count('second'))] as const;
  mayEnd.resolve();
  expect(await first).toBe(3);
  const [stack, second] = await Promise.all(others);
  try {
    expect(second).toBe(3);
    expect(await withStore(deployment.config, async (db, isStopped) => [await count('third')(db), isStopped])).toEqual([
      3,
      false,
    ]);
    expect(order).toEqual(['first', 'second', 'third']);
  } finally {
    await stack.stop();
  }
  expect(isRunning()).toBe(false);
});

test('a command that is interrupted while it reads a stopped deployment’s store leaves nothing running', async () => {
  const script = `
    import { start } from ${JSON.stringify(join(import.meta.dirname, '../main.ts'))};
    import { withStore } from ${JSON.stringify(join(import.meta.dirname, 'connect.ts'))};
    import { resolveConfig } from ${JSON.stringify(join(import.meta.dirname, '../config/resolve.ts'))};
    await start([(root) => root.command('read').action(() =>
      withStore(resolveConfig({}).config, async (db) => {
        console.log('reads');
        await db.$client.query('select pg_sleep(600)');
      }))]);`;
  const args = ['--input-type=module', '--eval', script, 'main.ts', 'read'];
  const child = spawn(INSTALLS.node, args, { env: deployment.env, cwd: deployment.home, stdio: 'pipe' });
  const ended = once(child, 'exit');
  await Promise.race([once(child.stdout, 'data'), ended]);
  expect(isRunning()).toBe(true);
  child.kill('SIGINT');
  expect((await ended)[0]).toBe(EXIT.interrupted);
  expect(isRunning()).toBe(false);
});

test('data that a server has or had when it was killed are left as they are, because another machine may serve them', async () => {
  const lock = join(postgresHome(deployment.home).data, 'postmaster.pid');
  writeFileSync(lock, '1\n');
  try {
    await expect(withStore(deployment.config, async () => null)).rejects.toThrow(/start the deployment/);
    expect(readFileSync(lock, 'utf8')).toBe('1\n');
  } finally {
    rmSync(lock);
  }
});

test('a deployment that was never started has no store to read, and the error says how to start it', async () => {
  const { config, remove } = await temporaryDeployment();
  await expect(withStore(config, async () => null).finally(remove)).rejects.toThrow(
    /nothing was started in .* yet\. Start it with `npx trialgate up`/,
  );
});
