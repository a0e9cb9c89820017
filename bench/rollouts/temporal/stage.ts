import { mkdtemp, rm } from 'node:fs/promises';
import { chmodSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestWorkflowEnvironment } from '@temporalio/testing';
import { Worker } from '@temporalio/worker';
import { runConfig, type RunConfig } from '../../../core/run-config/run-config.ts';
import { REPOSITORY } from '../../../core/repository.ts';
import { startRun, type RunHandle } from '../../../cli/run/start-run.ts';
import { SANDBOX_QUEUE, TASK_QUEUE } from '../../../core/task-queues.ts';
import { workflowBundle } from '../../../cli/workflow-bundle.ts';
import { openDatabase, type Database } from '../../../store/database.ts';
import { TestPostgres } from '../../../tests/support/harness/postgres.ts';
import { startTemporal } from '../../../tests/support/harness/workflow-worker.ts';
import type { World } from './world.ts';

export type Stage = { db: Database; environment: TestWorkflowEnvironment; home: string; signal: AbortSignal };

/** Runs `body` with a Temporal server, a PostgreSQL and a deployment's folder. */
export async function withStage<T>(signal: AbortSignal, body: (stage: Stage) => Promise<T>): Promise<T> {
  await using stack = new AsyncDisposableStack();
  const home = await mkdtemp(join(tmpdir(), 'trialgate-rollouts-'));
  chmodSync(home, 0o755);
  stack.defer(() => rm(home, { recursive: true, force: true }));
  const postgres = await TestPostgres.create();
  stack.defer(() => postgres.close());
  const db = openDatabase(postgres.url);
  stack.defer(() => db.$client.end());
  const environment = await startTemporal();
  stack.defer(() => environment.teardown());
  return await body({ db, environment, home, signal });
}

/** Runs the workflows over a world with as many activities at once as a worker of `trialgate` has. */
export async function runIn<T>(
  stage: Stage,
  world: World,
  sandboxes: number,
  id: string,
  settings: Partial<RunConfig>,
  body: (handle: RunHandle) => Promise<T>,
): Promise<T> {
  const { nativeConnection: connection, client } = stage.environment;
  const heartbeats = { maxHeartbeatThrottleInterval: '2s', defaultHeartbeatThrottleInterval: '2s' } as const;
  const shared = { connection, shutdownGraceTime: '1s', shutdownForceTime: '5s', ...heartbeats } as const;
  const workers = await Promise.all([
    Worker.create({ ...shared, taskQueue: TASK_QUEUE, workflowBundle: await workflowBundle() }),
    Worker.create({
      ...shared,
      taskQueue: TASK_QUEUE,
      activities: world.general(),
      maxConcurrentActivityTaskExecutions: 2000,
    }),
    Worker.create({
      ...shared,
      taskQueue: SANDBOX_QUEUE,
      activities: world.openings(),
      maxConcurrentActivityTaskExecutions: sandboxes,
    }),
    Worker.create({
      ...shared,
      taskQueue: 'host',
      activities: world.host(),
      maxConcurrentActivityTaskExecutions: 2 * sandboxes,
    }),
    Worker.create({ ...shared, taskQueue: 'gpu', activities: world.gpu() }),
  ]);
  const running = workers.map((worker) => worker.run());
  try {
    const handle = await startRun(client, id, configOf(settings));
    const stop = () => void handle.terminate('the benchmark was interrupted').catch(() => {});
    stage.signal.addEventListener('abort', stop, { once: true });
    try {
      return await body(handle);
    } finally {
      stage.signal.removeEventListener('abort', stop);
      stage.signal.throwIfAborted();
    }
  } finally {
    for (const worker of workers) worker.shutdown();
    await Promise.all(running);
  }
}

const DAY = 86_400;

const configOf = (settings: Partial<RunConfig>): RunConfig =>
  runConfig.parse({
    model: 'bench',
    tasks: [join(REPOSITORY, 'tasks/train')],
    engines: ['http://127.0.0.1:9'],
    iterations: 1,
    evaluation: { before: false, after: false },
    deadlines: { trial: DAY, group: DAY, iteration: DAY, train: DAY },
    ...settings,
  });
