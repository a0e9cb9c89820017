import { expect, test } from 'vitest';
import type { PublishInput } from '../../core/gpu-contract.ts';
import { confirmedReplicas } from '../support/fakes/confirmed-replicas.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { FakeEngine } from '../support/fakes/fake-engine.ts';
import { replicas } from '../../store/schema.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import { hold } from '../histories/stage.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';
import { poolOver, recordsOver } from '../support/harness/records-over.ts';
import { startRun } from '../../cli/run/start-run.ts';

const store = useDatabase();
const environment = useTemporal();

test('an engine that restarts during a rollout gets the version published again while the other replicas stay in rotation', async () => {
  await using folder = await temporaryHome();
  const { home } = folder;
  const { folder: task } = await taskWith(home, 'true');
  const engines = await Promise.all([new FakeEngine().start(), new FakeEngine().start()]);
  const world = new FakeWorld();
  const { held, free } = hold(world, /./);
  const place = { db: store.db, temporal: environment.client, home };
  const general = { ...recordsOver(world, place), ...poolOver(place) };
  const published: { to: string[]; inRotation: string[] }[] = [];
  const publishPolicy = async (input: PublishInput) => {
    const { weight_version, replicas: urls } = input;
    const rows = await store.db.select().from(replicas);
    published.push({ to: urls, inRotation: rows.filter((row) => row.inRotation).map(({ url }) => url) });
    for (const engine of engines) if (urls.includes(engine.url)) engine.weightVersion = weight_version;
    return { replicas: confirmedReplicas(input) };
  };
  const [restarted, other] = engines.map(({ url }) => url);
  await withWorkers(
    environment,
    {
      trialgate: general,
      sandboxes: { openTrial: general.openTrial },
      host: world.host(),
      gpu: { ...world.gpu(), publishPolicy },
    },
    async () => {
      const config = runConfig.parse({
        model: 'm',
        tasks: [task],
        iterations: 1,
        groups_per_iteration: 1,
        group_size: 2,
        engines: [restarted, other],
        min_replicas: 1,
      });
      const run = await startRun(environment.client, 'lost', config);
      await expect.poll(() => held.size).toBe(2);
      await engines[0]?.stop();
      await engines[0]?.start('default');
      await expect
        .poll(
          async () =>
            (await store.db.select().from(replicas)).every(({ inRotation }) => inRotation) && engines[0]?.weightVersion,
          { interval: 200 },
        )
        .toBe('lost@0');
      free();
      await run.result();
    },
  );
  expect(published).toEqual([
    { to: [restarted, other].toSorted(), inRotation: [] },
    { to: [restarted], inRotation: [other] },
    { to: [restarted, other].toSorted(), inRotation: [] },
  ]);
  for (const engine of engines) await engine.stop();
});
