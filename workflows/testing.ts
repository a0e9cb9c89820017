import { TestWorkflowEnvironment } from '@temporalio/testing';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import path from 'node:path';
import { askAgain } from '../cli/run/ask-again.ts';
import { TEMPORAL_POLLING } from '../cli/temporal-polling.ts';
import { workflowBundle } from '../cli/workflow-bundle.ts';

export type Temporal = Pick<TestWorkflowEnvironment, 'client' | 'nativeConnection' | 'address'>;

const temporalBinary = path.join(import.meta.dirname, '../.trialgate/venv/bin/temporal');

/** A real Temporal server without a file behind it, for one test file. */
export async function startTemporal(): Promise<TestWorkflowEnvironment> {
  Runtime.install({ logger: new DefaultLogger('ERROR') });
  return TestWorkflowEnvironment.createLocal({
    client: { interceptors: { workflow: [askAgain] } },
    server: {
      executable: { type: 'existing-path', path: temporalBinary },
      searchAttributes: [],
      extraArgs: [
        ...TEMPORAL_POLLING,
        ...['TrialgateRun=Keyword', 'TrialgateIteration=Int', 'TrialgatePolicyVersion=Int', 'TrialgatePhase=Keyword'].flatMap((attribute) => ['--search-attribute', attribute]),
      ],
    },
  });
}

/** The real workflows over activities made for a test, while `body` runs. */
export async function withWorkers<T>(
  { nativeConnection: connection }: Temporal,
  activities: Record<string, Record<string, (input: never) => Promise<unknown>>>,
  body: () => Promise<T>,
): Promise<T> {
  const workers = await Promise.all([
    Worker.create({ connection, taskQueue: 'trialgate', workflowBundle: await workflowBundle() }),
    ...Object.entries(activities).map(([taskQueue, each]) =>
      Worker.create({
        connection,
        taskQueue,
        activities: each,
        maxHeartbeatThrottleInterval: '1s',
        defaultHeartbeatThrottleInterval: '1s',
      }),
    ),
  ]);
  const running = workers.map((worker) => worker.run());
  try {
    return await body();
  } finally {
    for (const worker of workers) worker.shutdown();
    await Promise.all(running);
  }
}
