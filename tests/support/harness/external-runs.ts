import { startRun } from '../../../cli/run/start-run.ts';
import { asc, eq } from 'drizzle-orm';
import { runKey } from '../../../core/keys.ts';
import { runConfig } from '../../../core/run-config/run-config.ts';
import { FakeWorld } from '../fakes/fake-activities.ts';
import type { TestDatabase } from './postgres.ts';
import { trials } from '../../../store/schema.ts';
import { SECRET, type TestGateway } from './gateways.ts';
import { recordsOver } from './records-over.ts';
import { temporaryHome } from './sandbox-fixtures.ts';
import { withWorkers, type Temporal } from './workflow-worker.ts';

type Settings = {
  iterations?: number;
  deadlines?: Record<string, number>;
  group_size?: number;
  groups_per_iteration?: number;
};

let serial = 0;

/** Runs with `rollouts: external` over a test's gateway and Temporal, with a fake trainer. */
export function externalRuns(environment: Temporal, gateway: TestGateway<TestDatabase>) {
  async function publish(runId: string, version: number): Promise<void> {
    gateway.engine.weightVersion = `${runId}@${version}`;
    await gateway.givePool(runId, `${runId}@${version}`);
  }

  /** Starts a run whose groups this test claims, and ends its workers with `body`. */
  async function withExternalRun(
    settings: Settings,
    body: (runId: string, ended: () => Promise<unknown>, world: FakeWorld) => Promise<void>,
  ): Promise<void> {
    await using folder = await temporaryHome();
    const runId = `outside${++serial}`;
    const world = new FakeWorld();
    const records = recordsOver(world, { db: gateway.db, temporal: environment.client, home: folder.home });
    const config = runConfig.parse({
      model: 'm',
      rollouts: 'external',
      iterations: 1,
      groups_per_iteration: 1,
      group_size: 2,
      ...settings,
    });
    await publish(runId, 0);
    await withWorkers(environment, { trialgate: records, gpu: world.gpu() }, async () => {
      const run = await startRun(environment.client, runId, config);
      await body(runId, () => run.result(), world);
    });
  }

  /** The variables by which a program reaches a run. */
  const accessTo = (runId: string): Record<string, string> => ({
    TRIALGATE_RUN: runId,
    TRIALGATE_URL: gateway.gateway.url,
    TRIALGATE_RUN_KEY: runKey(SECRET, runId),
  });

  /** Returns a run's trials, in their order. */
  const readTrials = (runId: string) =>
    gateway.db
      .select()
      .from(trials)
      .where(eq(trials.runId, runId))
      .orderBy(asc(trials.groupId), asc(trials.trialIndex));

  return { withExternalRun, publish, accessTo, readTrials };
}
