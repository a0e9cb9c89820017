import type { TestWorkflowEnvironment } from '@temporalio/testing';
import { eq } from 'drizzle-orm';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { publications, replicas, runs } from '../../store/schema.ts';
import { runWithVersion } from '../../tests/support/scenarios/run-with-version.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { startTemporal, stopTemporal } from '../../tests/support/harness/workflow-worker.ts';
import { hasLostReplica, missingVersion } from './check-pool.ts';
import type { Deps } from '../deps.ts';
import type { PublishInput, ReplicaReport } from '../../core/gpu-contract.ts';
import { Graders } from '../reward/graders.ts';
import { HostSandboxes } from '../sandbox/host-sandboxes.ts';
import { planBase } from '../run/plan-base.ts';
import { beginPublication, endPublication } from './publication.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';

const store = useDatabase();
let environment: TestWorkflowEnvironment;
let home: Awaited<ReturnType<typeof temporaryHome>>;
let deps: Deps;
let engines: [FakeEngine, FakeEngine, FakeEngine];
beforeAll(async () => {
  [environment, home] = await Promise.all([startTemporal(), temporaryHome()]);
  deps = {
    db: store.db,
    temporal: environment.client,
    gatewayUrls: [],
    home: home.home,
    secret: '',
    hostQueue: '',
    sandboxes: new HostSandboxes(home.home, 1),
    graders: new Graders(home.home),
  };
});
afterAll(async () => {
  await stopTemporal(environment);
  await home?.[Symbol.asyncDispose]();
});
afterEach(async () => {
  for (const engine of engines) await engine.stop();
});

/** A run that needs two of its three engines, all of which have its version 1. */
beforeEach(async () => {
  for (const table of [replicas, runs]) await store.db.delete(table);
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 3, min_replicas: 2, head_dtype: 'float32' });
  for (const version of [0, 1, 2]) await runWithVersion(store.db, home.home, 'run', version, config);
  const start = () => new FakeEngine().start('run@1');
  engines = [await start(), await start(), await start()];
  await store.db.insert(replicas).values(engines.map(({ url }) => ({ url, runId: 'run', weightVersion: 'run@1' })));
  await endPublication(deps)({
    runId: 'run',
    version: 1,
    reports: reportsOf({ replicas: engines.map(({ url }) => url), weight_version: 'run@1' }),
  });
});

const reportsOf = ({
  replicas: urls,
  weight_version,
}: Pick<PublishInput, 'replicas' | 'weight_version'>): ReplicaReport[] =>
  urls.map((url) => ({
    url,
    ok: true,
    weight_version,
    checksum: 'c',
    canary_difference: 0.01,
    seconds: 1,
    error: null,
  }));
const rotation = async () => {
  const rows = await store.db.select().from(replicas);
  return engines.map(({ url }) => rows.find((row) => row.url === url)?.inRotation);
};
const missing = () => missingVersion(deps)({ runId: 'run' });

test('a replica that came back without its weights is published to, also when the run has enough replicas without it', async () => {
  expect(await missing()).toBeNull();
  engines[0].weightVersion = 'default';
  expect(await missing()).toBe(1);
});

test('a pool is repaired for a replica that cannot be reached only when the run lacks replicas without it', async () => {
  await engines[0].stop();
  expect(await missing()).toBeNull();
  await engines[1].stop();
  expect(await missing()).toBe(1);
  expect((await beginPublication(deps)({ runId: 'run', version: 1, isMend: true })).replicas).toEqual(
    [engines[0].url, engines[1].url].toSorted(),
  );
});

test('a repair takes only the lost replicas out of rotation', async () => {
  engines[1].weightVersion = 'default';
  const asked = await beginPublication(deps)({ runId: 'run', version: 1, isMend: true });
  expect(asked).toMatchObject({
    weight_version: 'run@1',
    replicas: [engines[1].url],
    min_replicas: 0,
    checksum: 'c',
    previous: null,
  });
  expect(await rotation()).toEqual([true, false, true]);
  engines[1].weightVersion = 'run@1';
  await endPublication(deps)({ runId: 'run', version: 1, isMend: true, reports: reportsOf(asked) });
  expect(await rotation()).toEqual([true, true, true]);
  expect(await missing()).toBeNull();
});

test('a repair of all replicas compares their tensors with the recorded checksum and needs as many of them as the run does', async () => {
  const begin = () => beginPublication(deps)({ runId: 'run', version: 1, isMend: true });
  engines[0].weightVersion = 'default';
  expect(await begin()).toMatchObject({ needed: 0, checksum: 'c' });
  for (const engine of engines) engine.weightVersion = 'default';
  const asked = await begin();
  expect(asked).toMatchObject({ needed: 2, checksum: 'c' });
  engines[2].weightVersion = 'run@1';
  await endPublication(deps)({
    runId: 'run',
    version: 1,
    isMend: true,
    reports: reportsOf({ replicas: [engines[2].url], weight_version: 'run@1' }),
  });
  expect(await begin()).toMatchObject({ needed: 1, replicas: [engines[0].url, engines[1].url].toSorted() });
});

test('a publication goes on without a replica that cannot be reached, and the replica gets the version when it is back', async () => {
  await engines[2].stop();
  const asked = await beginPublication(deps)({ runId: 'run', version: 2 });
  expect(asked).toMatchObject({
    weight_version: 'run@2',
    replicas: [engines[0].url, engines[1].url].toSorted(),
    min_replicas: 2,
  });
  for (const engine of engines) engine.weightVersion = 'run@2';
  await endPublication(deps)({ runId: 'run', version: 2, reports: reportsOf(asked) });
  expect(await rotation()).toEqual([true, true, false]);
  await engines[2].start('default');
  expect(await missing()).toBe(2);
  expect(
    (await store.db.select().from(publications).where(eq(publications.version, 2)))
      .map(({ replica }) => replica)
      .toSorted(),
  ).toEqual(asked.replicas);
});

test('version 0, a publication and a repair all get the run’s `head_dtype`', async () => {
  expect((await planBase(deps)({ runId: 'run' })).head_dtype).toBe('float32');
  expect((await beginPublication(deps)({ runId: 'run', version: 2 })).head_dtype).toBe('float32');
  expect((await beginPublication(deps)({ runId: 'run', version: 1, isMend: true })).head_dtype).toBe('float32');
});

test('an engine that came back without its weights counts as lost, except while a publication is under way', async () => {
  const isBack = () => hasLostReplica(deps)({ runId: 'run' });
  await engines[0].stop();
  expect(await isBack()).toBe(false);
  await engines[0].start('loading:run@2');
  const publishing = await environment.client.workflow.start('publishVersion', {
    workflowId: 'run/publish',
    taskQueue: 'nobody',
    args: [],
  });
  expect(await isBack()).toBe(false);
  await publishing.terminate();
  expect(await isBack()).toBe(true);
});
