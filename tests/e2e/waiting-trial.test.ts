import { Worker } from '@temporalio/worker';
import { asc, eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { groups, trials } from '../../store/schema.ts';
import { callRecord } from '../support/scenarios/call-record.ts';
import { until } from '../support/harness/until.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import type { GroupReport } from '../../workflows/messages.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';
import { recordsOver } from '../support/harness/records-over.ts';
import { startRun } from '../../cli/run/start-run.ts';

const environment = useTemporal();
const store = useDatabase();

test('a trial that waits for a slot never opens once it is skipped, and keeps the time that `extend` gives it', async () => {
  const { db } = store;
  await using folder = await temporaryHome();
  const world = new FakeWorld();
  const freed = Promise.withResolvers<void>();
  world.runAgent = async ({ trialId, attempt }) => {
    world.log.push(`agent ${trialId}`);
    await recordCalls(db, [callRecord({ trialId, attempt, choice: { policyVersion: 0 } })]);
    await freed.promise;
    return { outcome: null, seconds: {} };
  };
  const records = recordsOver(world, { db, temporal: environment.client, home: folder.home });
  const config = runConfig.parse({
    model: 'm',
    tasks: [(await taskWith(folder.home, 'true')).folder],
    iterations: 1,
    groups_per_iteration: 1,
    group_size: 2,
  });
  await withWorkers(environment, { trialgate: records, host: world.host(), gpu: world.gpu() }, async () => {
    const run = await startRun(environment.client, 'waits', config);
    const group = environment.client.workflow.getHandle('waits/0.1/0');
    const readStatus = () => group.query<GroupReport>('status');
    await until(() =>
      readStatus().then(
        () => true,
        () => false,
      ),
    );
    const first = await readStatus();
    expect(first.trials.map(({ state }) => state)).toEqual(['opening', 'opening']);

    await run.executeUpdate('extend', { args: [{ trial: 'waits-0.1-0-0', seconds: 5000 }] });
    await until(async () => Date.parse((await readStatus()).until) === Date.parse(first.until) + 5_000_000);
    await run.executeUpdate('skip', { args: [{ trial: 'waits-0.1-0-1' }] });
    await until(async () => (await readStatus()).trials[1]?.state === 'cancelled');

    const before = Date.now();
    const { nativeConnection: connection, client } = environment;
    const host = await Worker.create({
      connection,
      namespace: client.options.namespace,
      taskQueue: 'sandboxes',
      activities: { openTrial: records.openTrial },
    });
    await host.runUntil(async () => {
      await until(async () => (await readStatus()).trials[0]?.state === 'agent');
      expect(Date.parse((await readStatus()).trials[0]?.until ?? '')).toBeGreaterThanOrEqual(
        before + (config.deadlines.trial + 5000) * 1000,
      );
      freed.resolve();
      await run.result();
    });
  }).finally(freed.resolve);
  expect(world.log.filter((entry) => entry.startsWith('agent'))).toEqual(['agent waits-0.1-0-0']);
  expect(await db.select().from(trials).orderBy(asc(trials.trialIndex))).toMatchObject([
    { outcome: 'scored' },
    {
      id: 'waits-0.1-0-1',
      groupId: 'waits/0.1/0',
      trialIndex: 1,
      runId: 'waits',
      outcome: 'cancelled',
      reason: 'skipped by a person',
    },
  ]);
  const [row] = await db.select().from(groups).where(eq(groups.id, 'waits/0.1/0'));
  expect(row?.deadlineAt?.getTime()).toBeGreaterThan(
    (row?.openedAt.getTime() ?? Infinity) + (config.deadlines.group + 4000) * 1000,
  );
});
