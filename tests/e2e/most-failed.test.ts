import { eq, isNotNull } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { runs, trials } from '../../store/schema.ts';
import { callRecord } from '../support/scenarios/call-record.ts';
import { until } from '../support/harness/until.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';
import { recordsOver } from '../support/harness/records-over.ts';
import { startRun } from '../../cli/run/start-run.ts';

const environment = useTemporal();
const store = useDatabase();

test('a run most of whose trials fail is blocked with the cause, and after a resume only the failed trials run again', async () => {
  const { db } = store;
  await using folder = await temporaryHome();
  const tasks = await Promise.all([1, 2].map(async () => (await taskWith(folder.home, 'true')).folder));
  const world = new FakeWorld();
  let isRepaired = false;
  let failing = 0;
  world.runAgent = async ({ trialId, attempt }) => {
    world.log.push(`agent ${trialId}`);
    if (!isRepaired && !trialId.endsWith('-0-0')) {
      // They all fail after the good trial has ended, because a group that fails while others run is replaced.
      failing += 1;
      await until(
        async () => failing >= 5 && (await db.select().from(trials).where(isNotNull(trials.outcome))).length > 0,
      );
      return { outcome: 'infra_error', reason: 'no space left on device', seconds: {} };
    }
    await recordCalls(db, [callRecord({ trialId, attempt, choice: { policyVersion: 0 } })]);
    return { outcome: null, seconds: {} };
  };
  const records = recordsOver(world, { db, temporal: environment.client, home: folder.home });
  const config = runConfig.parse({
    model: 'm',
    tasks,
    iterations: 1,
    groups_per_iteration: 2,
    group_size: 3,
    max_attempts: 1,
  });
  await withWorkers(
    environment,
    { trialgate: records, sandboxes: { openTrial: records.openTrial }, host: world.host(), gpu: world.gpu() },
    async () => {
      const run = await startRun(environment.client, 'burnt', config);
      const status = () => run.query<RunStatusReport>('status');
      await until(async () => (await status()).phase === 'blocked');
      expect((await status()).reason).toContain("5 of the iteration's first 6 trials failed: no space left on device");
      expect(await db.select().from(runs).where(eq(runs.id, 'burnt'))).toMatchObject([
        { status: 'blocked', reason: (await status()).reason },
      ]);
      expect(await db.select().from(trials)).toHaveLength(6);
      isRepaired = true;
      await run.executeUpdate('resume');
      await run.result();
    },
  );
  expect((await db.select().from(trials)).map(({ outcome }) => outcome)).toEqual(
    Array.from({ length: 6 }, () => 'scored'),
  );
  expect(world.count('agent burnt-0.1-0-0')).toBe(1);
});
