import { eq, ne } from 'drizzle-orm';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Database } from '../../store/database.ts';
import { groups, policyVersions, poolWaits, replicas, runs } from '../../store/schema.ts';
import { depsOver } from '../../tests/support/harness/deps-over.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { runWithVersion } from '../../tests/support/scenarios/run-with-version.ts';
import { useTemporal } from '../../tests/support/harness/use-temporal.ts';
import { acquirePool, releasePool, releaseUnusedPool, returnPool } from '../pool/acquire-pool.ts';
import { borrowPool } from '../pool/borrow-pool.ts';
import type { Deps } from '../deps.ts';
import { readQueue } from '../../store/queries/pool-queue.ts';
import { changeFound } from '../../store/queries/register-replicas.ts';
import { planEvaluationOnDemand } from './plan-evaluation-on-demand.ts';
import { runConfig } from '../../core/run-config/run-config.ts';

const config = runConfig.parse({ model: 'm', tasks: [resolve('tasks/train')], iterations: 3 });
const environment = useTemporal();
const store = useDatabase();
let db: Database;
let home: string;
let deps: Deps;
beforeAll(async () => {
  db = store.db;
  home = await mkdtemp(join(tmpdir(), 'trialgate-evaluate-'));
  deps = depsOver({ db, temporal: environment.client, home });
});
beforeEach(async () => {
  for (const table of [groups, replicas, runs]) await db.delete(table);
  for (const version of [0, 1, 2]) await runWithVersion(db, home, 'first', version, config);
  await runWithVersion(db, home, 'second', 0, config);
  await db.insert(replicas).values([{ url: 'unix:/a' }, { url: 'unix:/b' }]);
});
afterAll(() => rm(home, { recursive: true }));

/** Runs `body` while Temporal has a workflow with this id under way, on which no worker works. */
async function underWay<T>(workflowId: string, body: () => Promise<T>): Promise<T> {
  const handle = await environment.client.workflow.start('trainRun', { workflowId, taskQueue: 'nobody', args: [] });
  return body().finally(() => handle.terminate());
}
const owners = async () => [...new Set((await db.select().from(replicas)).map((row) => row.runId))];

test('an evaluation of a run under way shares the run’s engines and samples only from the policy version that they have', async () => {
  await acquirePool(deps)({ runId: 'first' });
  await db.update(replicas).set({ weightVersion: 'first@1' });
  await db.update(replicas).set({ inRotation: false, weightVersion: 'first@0' }).where(eq(replicas.url, 'unix:/a'));
  await underWay('first', async () => {
    expect(await borrowPool(deps)({ runId: 'first' })).toEqual({ version: 1, published: true });
    expect(await borrowPool(deps)({ runId: 'first', version: 1 })).toEqual({ version: 1, published: true });
    await expect(borrowPool(deps)({ runId: 'first', version: 2 })).rejects.toMatchObject({
      nonRetryable: true,
      message:
        'run first is under way and its engines have version 1: evaluate that one, or stop the run before (npx trialgate stop first)',
    });
    await returnPool(deps)({ runId: 'first' });
    expect(await owners()).toEqual(['first']);
  });
});

test('an evaluation of an ended run takes the engines, evaluates the run’s last version if it names none, and releases the engines at its end', async () => {
  expect(await borrowPool(deps)({ runId: 'first' })).toEqual({ version: 2, published: false });
  expect(await owners()).toEqual(['first']);
  expect(await borrowPool(deps)({ runId: 'first', version: 0 })).toEqual({ version: 0, published: false });
  await expect(borrowPool(deps)({ runId: 'first', version: 9 })).rejects.toMatchObject({
    nonRetryable: true,
    message: 'run first has no policy version 9',
  });
  await db.update(policyVersions).set({ prunedAt: new Date() }).where(eq(policyVersions.version, 1));
  await expect(borrowPool(deps)({ runId: 'first', version: 1 })).rejects.toMatchObject({
    nonRetryable: true,
    message: expect.stringContaining('version 1 of run first was pruned when the run completed'),
  });
  await returnPool(deps)({ runId: 'first' });
  expect(await owners()).toEqual([null]);
});

test('engines in which an evaluation samples go to no other run until the evaluation has ended', async () => {
  await borrowPool(deps)({ runId: 'first' });
  await underWay('first/publish', async () => {
    await releasePool(deps)({ runId: 'first' });
    expect(await owners()).toEqual(['first']);
    await expect(acquirePool(deps)({ runId: 'second' })).rejects.toMatchObject({
      type: 'pool_busy',
      nonRetryable: false,
    });
  });
  await acquirePool(deps)({ runId: 'second' });
  expect(await owners()).toEqual(['second']);
});

test('of the runs that wait for engines, the one that began to wait first gets them, and one that gave up delays nobody', async () => {
  await runWithVersion(db, home, 'third', 0, config);
  const wants = (runId: string) => acquirePool(deps)({ runId });
  await wants('first');
  await underWay('first', async () => {
    await expect(wants('third')).rejects.toMatchObject({ type: 'pool_busy' });
    await expect(wants('second')).rejects.toMatchObject({ type: 'pool_busy' });
    expect((await readQueue(db)).owner).toBe('first');
    expect((await readQueue(db)).waiting.map(({ runId }) => runId)).toEqual(['third', 'second']);
  });
  await releasePool(deps)({ runId: 'first' });
  await expect(wants('second')).rejects.toMatchObject({
    type: 'pool_busy',
    message: 'waiting for engines: run third began to wait before this one',
  });
  await db
    .update(poolWaits)
    .set({ seenAt: new Date(Date.now() - 60_000) })
    .where(eq(poolWaits.runId, 'third'));
  await wants('second');
  expect(await readQueue(db)).toEqual({ owner: 'second', waiting: [], blocked: [] });
});

test('the engines of a blocked run are released once no evaluation uses them, and later evaluations of the run wait', async () => {
  await acquirePool(deps)({ runId: 'first' });
  await db.update(replicas).set({ weightVersion: 'first@1' });
  await db.update(runs).set({ status: 'blocked' }).where(eq(runs.id, 'first'));
  expect(await readQueue(db)).toEqual({ owner: 'first', waiting: [], blocked: [] });
  await underWay('first', async () => {
    await underWay('first/publish', async () => {
      await expect(releaseUnusedPool(deps)({ runId: 'first' })).rejects.toMatchObject({
        type: 'pool_busy',
        nonRetryable: false,
      });
    });
    expect(await borrowPool(deps)({ runId: 'first' })).toEqual({ version: 1, published: true });
    expect(await releaseUnusedPool(deps)({ runId: 'first' })).toBe(true);
    expect(await owners()).toEqual([null]);
    expect(await readQueue(db)).toEqual({ owner: null, waiting: [], blocked: ['first'] });
    expect(await releaseUnusedPool(deps)({ runId: 'first' })).toBe(false);
    await expect(borrowPool(deps)({ runId: 'first' })).rejects.toMatchObject({ type: 'pool_busy' });
  });
});

test('an evaluation that is refused because a run has the engines fails at once without a retry, so that this run can publish', async () => {
  await acquirePool(deps)({ runId: 'second' });
  await underWay('second', async () => {
    await expect(borrowPool(deps)({ runId: 'first' })).rejects.toMatchObject({ type: 'pool_busy', nonRetryable: true });
  });
  await db.update(replicas).set({ runId: 'first', weightVersion: null });
  await underWay('first', async () => {
    await expect(borrowPool(deps)({ runId: 'first' })).rejects.toMatchObject({ type: 'pool_busy', nonRetryable: true });
  });
});

test('a retry of the activity that plans an evaluation plans the same trials; the next evaluation of the version gets a new id', async () => {
  const asked = { runId: 'first', version: 2, tasks: [resolve('tasks/eval')], samples: 3 };
  const planned = await planEvaluationOnDemand(deps)(asked);
  expect(await planEvaluationOnDemand(deps)(asked)).toEqual(planned);
  expect(planned).toMatchObject({ id: 'eval@2.1', deadlineSeconds: config.deadlines.iteration });
  expect(planned.plans[1]).toMatchObject({
    id: 'first/eval@2.1/1',
    trialPrefix: 'first-eval.2.1-1',
    size: 3,
    kind: 'eval',
    policyVersion: 2,
  });
  for (const { id, runId, kind, ordinal, task, agent, size, policyVersion } of planned.plans)
    await db.insert(groups).values({ id, runId, kind, ordinal, task, agent, size, policyVersion });
  await db.insert(groups).values({
    id: 'first/eval@2/10',
    runId: 'first',
    kind: 'eval',
    ordinal: 10,
    task: 't',
    agent: 'a',
    size: 1,
    policyVersion: 2,
  });
  expect((await planEvaluationOnDemand(deps)(asked)).id).toBe('eval@2.2');
  expect((await planEvaluationOnDemand(deps)({ ...asked, version: 1 })).id).toBe('eval@1.1');
});

test('an evaluation without tasks or without samples is refused', async () => {
  const none = planEvaluationOnDemand(deps)({ runId: 'first', version: 2 });
  await expect(none).rejects.toMatchObject({
    type: 'bad_input',
    message: 'run first names no held-out tasks: say which ones (--tasks FOLDER)',
  });
  const zero = planEvaluationOnDemand(deps)({ runId: 'first', version: 2, tasks: [resolve('tasks/eval')], samples: 0 });
  await expect(zero).rejects.toMatchObject({
    type: 'bad_input',
    message: expect.stringContaining('samples: expected'),
  });
});

test('a run gets only the engines that do not drain; while all of them drain, it gets an error that names this cause', async () => {
  const drain = (url: string) => db.update(replicas).set({ drainedByHand: true }).where(eq(replicas.url, url));
  await drain('unix:/a');
  expect(await acquirePool(deps)({ runId: 'first' })).toEqual(['unix:/b']);
  await returnPool(deps)({ runId: 'first' });
  await drain('unix:/b');
  await expect(acquirePool(deps)({ runId: 'first' })).rejects.toThrow(/no engine is registered, or all of them drain/);
});

test('a run gets only the engines that runs can use, and is refused with the reason when there are none', async () => {
  const openai = 'openai+http://127.0.0.1:9';
  await db.insert(replicas).values({ url: openai });
  expect(await acquirePool(deps)({ runId: 'first' })).toEqual(['unix:/a', 'unix:/b']);
  expect(await db.select().from(replicas).where(eq(replicas.url, openai))).toMatchObject([
    { runId: null, inRotation: true },
  ]);
  await returnPool(deps)({ runId: 'first' });
  await db.delete(replicas).where(ne(replicas.url, openai));
  const refusal = {
    type: 'bad_input',
    nonRetryable: true,
    message: expect.stringMatching(/^openai\+.* is no engine for a run/),
  };
  await expect(acquirePool(deps)({ runId: 'first' })).rejects.toMatchObject(refusal);
  await expect(borrowPool(deps)({ runId: 'second' })).rejects.toMatchObject(refusal);
});

describe('an evaluation on servers that take no weights', () => {
  const [served, other] = ['openai+http://127.0.0.1:9', 'openai+http://127.0.0.1:10'];
  const evaluated = (runId: string, engines: string[]) =>
    db.insert(runs).values({ id: runId, config: runConfig.parse({ ...config, iterations: 0, engines }) });
  const rowOf = async (url: string) => (await db.select().from(replicas).where(eq(replicas.url, url)))[0];

  test('it gets them at once as version 0, with nothing to publish, and needs no policy version; another waits for those that it has', async () => {
    await evaluated('third', [served, other]);
    await evaluated('fourth', [served]);
    expect(await borrowPool(deps)({ runId: 'third' })).toEqual({ version: 0, published: true });
    expect(await rowOf(served)).toMatchObject({ runId: 'third', inRotation: true, weightVersion: null });
    await underWay('third/publish', async () => {
      await expect(borrowPool(deps)({ runId: 'fourth' })).rejects.toMatchObject({
        type: 'pool_busy',
        nonRetryable: true,
        message: expect.stringContaining(`waiting for engine ${served}: run third has it`),
      });
    });
    await returnPool(deps)({ runId: 'third' });
    expect(await rowOf(served)).toBeUndefined();
    expect(await borrowPool(deps)({ runId: 'fourth', version: 0 })).toEqual({ version: 0, published: true });
    await expect(borrowPool(deps)({ runId: 'fourth', version: 1 })).rejects.toMatchObject({
      nonRetryable: true,
      message: expect.stringContaining('run fourth has no policy version 1: its servers take no weights'),
    });
  });

  test('it keeps no run from the deployment’s other engines, also when it has a server of the deployment', async () => {
    await db.insert(replicas).values({ url: served });
    await evaluated('third', [served]);
    await borrowPool(deps)({ runId: 'third' });
    expect(await readQueue(db)).toMatchObject({ owner: null });
    await underWay('third/publish', async () => {
      expect(await acquirePool(deps)({ runId: 'first' })).toEqual(['unix:/a', 'unix:/b']);
    });
    expect(await readQueue(db)).toMatchObject({ owner: 'first' });
    await returnPool(deps)({ runId: 'third' });
    expect(await rowOf(served)).toMatchObject({ runId: null, inRotation: true });
  });

  test('its run cannot train there', async () => {
    await evaluated('third', [served]);
    await expect(acquirePool(deps)({ runId: 'third' })).rejects.toMatchObject({
      type: 'bad_input',
      nonRetryable: true,
      message: expect.stringMatching(/^openai\+.* is no engine for a run/),
    });
  });
});

test('when a run releases the pool, the row of an engine that has left and was kept for the run is deleted', async () => {
  await acquirePool(deps)({ runId: 'first' });
  await changeFound(db, 'list', { found: [], left: ['unix:/a', 'unix:/b'] });
  expect(await db.select().from(replicas)).toMatchObject([{ foundBy: 'nobody', runId: 'first' }]);
  await returnPool(deps)({ runId: 'first' });
  expect(await db.select().from(replicas)).toEqual([]);
});
