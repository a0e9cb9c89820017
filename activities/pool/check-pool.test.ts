import { eq } from 'drizzle-orm';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { readDeployment } from '../../store/queries/read-deployment.ts';
import { changeFound } from '../../store/queries/register-replicas.ts';
import { policyVersions, publications, replicas, runs } from '../../store/schema.ts';
import { runWithVersion } from '../../tests/support/scenarios/run-with-version.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { useTemporal } from '../../tests/support/harness/use-temporal.ts';
import { hasLostReplica, missingVersion, poolHas } from './check-pool.ts';
import type { Deps } from '../deps.ts';
import type { PublishInput, ReplicaReport } from '../../core/gpu-contract.ts';
import { Graders } from '../reward/graders.ts';
import { HostSandboxes } from '../sandbox/host-sandboxes.ts';
import { planBase } from '../run/plan-base.ts';
import { beginPublication, endPublication } from './publication.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';

const store = useDatabase();
const environment = useTemporal();
let home: Awaited<ReturnType<typeof temporaryHome>>;
let deps: Deps;
let engines: [FakeEngine, FakeEngine, FakeEngine, ...FakeEngine[]];
beforeAll(async () => {
  home = await temporaryHome();
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
afterAll(async () => home?.[Symbol.asyncDispose]());
afterEach(async () => {
  for (const engine of engines) await engine.stop();
});

/** A run that needs two of its three engines, all of which have its version 1. */
beforeEach(async () => {
  for (const table of [replicas, runs]) await store.db.delete(table);
  const config = runConfig.parse({
    model: 'm',
    tasks: ['t'],
    iterations: 3,
    min_replicas: 2,
    head_dtype: 'float32',
    weight_broadcast: { type: 'gloo' },
  });
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

test('a publication and a repair are told how the run’s weights travel', async () => {
  for (const asked of [{ version: 2 }, { version: 1, isMend: true }])
    expect((await beginPublication(deps)({ runId: 'run', ...asked })).weight_broadcast).toEqual({
      type: 'gloo',
      timeout: 600,
    });
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

test('a run neither counts a draining replica nor publishes to it; when the replica serves again, it gets the version as a lost replica does', async () => {
  const drain = (draining: boolean) =>
    store.db.update(replicas).set({ draining }).where(eq(replicas.url, engines[0].url));
  await drain(true);
  await engines[0].stop();
  const others = [engines[1].url, engines[2].url].toSorted();
  const asked = await beginPublication(deps)({ runId: 'run', version: 2 });
  expect(asked).toMatchObject({ replicas: others, needed: 2 });
  for (const engine of engines) engine.weightVersion = 'run@2';
  await endPublication(deps)({ runId: 'run', version: 2, reports: reportsOf(asked) });
  expect(await poolHas(deps)({ runId: 'run', version: 2 })).toBe(true);
  expect(await missing()).toBeNull();
  await engines[0].start('run@1');
  await changeFound(store.db, 'list', { found: [{ url: engines[0].url, draining: false }], left: [] });
  expect([await rotation(), await missing()]).toEqual([[false, true, true], 2]);
});

test('while each engine that a run owns drains or has left, its publication fails and may be tried again, until another engine joins; when the run owns no engine, the failure is final', async () => {
  await store.db.update(replicas).set({ draining: true });
  await changeFound(store.db, 'list', { found: [], left: engines.map(({ url }) => url) });
  const begin = () => beginPublication(deps)({ runId: 'run', version: 2 });
  await expect(begin()).rejects.toMatchObject({
    type: 'engine_unavailable',
    nonRetryable: false,
    message: expect.stringContaining('all engines of run run drain or have left'),
  });
  const late = await new FakeEngine().start();
  engines.push(late);
  await changeFound(store.db, 'list', { found: [{ url: late.url, draining: false }], left: [] });
  expect(await begin()).toMatchObject({ replicas: [late.url], needed: 1 });
  await store.db.delete(replicas);
  await expect(begin()).rejects.toMatchObject({
    nonRetryable: true,
    message: expect.stringContaining('owns no engine'),
  });
});

/** Makes the run one of an adapter: its engines list the version before as one, and report a base. */
async function trainsAdapter(max_staleness: number): Promise<void> {
  const config = runConfig.parse({
    model: 'm',
    tasks: ['t'],
    iterations: 3,
    min_replicas: 2,
    lora_rank: 8,
    max_staleness,
  });
  await store.db.update(runs).set({ config });
  for (const version of [1, 2])
    await store.db
      .update(policyVersions)
      .set({ parentVersion: version - 1 })
      .where(eq(policyVersions.version, version));
  for (const engine of engines) Object.assign(engine, { weightVersion: 'base:1', adapters: ['run@1'] });
}

/** The engines that the page shows as behind the others. */
const behind = async () =>
  (await readDeployment(store.db)).engines.filter(({ isBehind }) => isBehind).map(({ row }) => row.url);

const versions = async () => {
  const rows = await store.db.select().from(replicas);
  return engines.map(({ url }) => rows.find((row) => row.url === url)?.weightVersion);
};

test('engines serve a LoRA adapter until the next one is confirmed; one that did not confirm then leaves the rotation', async () => {
  await trainsAdapter(0);
  const asked = await beginPublication(deps)({ runId: 'run', version: 2 });
  expect(asked).toMatchObject({ weight_version: 'run@2', keep: ['run@1'] });
  expect(asked.replicas).toEqual(engines.map(({ url }) => url).toSorted());
  expect([await rotation(), await versions()]).toEqual([Array(3).fill(true), Array(3).fill('run@1')]);
  await endPublication(deps)({ runId: 'run', version: 2, reports: [] });
  expect(await versions()).toEqual(Array(3).fill('run@1'));
  const [first, second, third] = engines.map(({ url }) => url);
  const confirmed = reportsOf({ replicas: [first ?? '', second ?? ''], weight_version: 'run@2' });
  await endPublication(deps)({ runId: 'run', version: 2, reports: confirmed });
  expect([await rotation(), await versions()]).toEqual([[true, true, false], Array(3).fill('run@2')]);
  expect(await behind()).toEqual([third]);
  for (const engine of engines.slice(0, 2)) engine.adapters = ['run@1', 'run@2'];
  expect(await missing()).toBe(2);
  const mend = await beginPublication(deps)({ runId: 'run', version: 2, isMend: true });
  expect(mend.replicas).toEqual([third]);
});

test('the adapters that the calls of trials may still use stay loaded, and the one to go back to', async () => {
  await trainsAdapter(2);
  expect((await beginPublication(deps)({ runId: 'run', version: 2 })).keep).toEqual(['run@1', 'run@0']);
  expect((await beginPublication(deps)({ runId: 'run', version: 0 })).keep).toEqual([]);
});

test('an engine that has lost its LoRA adapter counts as lost although it reports the base', async () => {
  await trainsAdapter(0);
  expect(await missing()).toBeNull();
  engines[1].adapters = [];
  expect(await missing()).toBe(1);
  expect(await hasLostReplica(deps)({ runId: 'run' })).toBe(true);
});
