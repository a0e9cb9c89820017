import { IllegalStateError } from '@temporalio/common';
import { TestWorkflowEnvironment } from '@temporalio/testing';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import path from 'node:path';
import { awaitClosed } from '../activities/await-closed.ts';
import { askAgain } from '../cli/run/ask-again.ts';
import { TEMPORAL_POLLING } from '../cli/temporal-polling.ts';
import { workflowBundle } from '../cli/workflow-bundle.ts';

export type Temporal = Pick<TestWorkflowEnvironment, 'client' | 'nativeConnection' | 'address'>;

const temporalBinary = path.join(import.meta.dirname, '../.trialgate/venv/bin/temporal');

/** A real Temporal server without a file behind it, for one test file. */
export async function startTemporal(): Promise<TestWorkflowEnvironment> {
  installRuntime();
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

/** Installed once a process, which several test files share: a test that hangs keeps it, and the files after that find it. */
export function installRuntime(): void {
  try {
    Runtime.install({ logger: new DefaultLogger('ERROR') });
  } catch (error) {
    if (!(error instanceof IllegalStateError)) throw error;
  }
}

type Connection = Temporal['nativeConnection'];

/** Workers that run, by their connection. */
const openWorkers = new Map<Connection, Map<Worker, Promise<void>>>();

/** Ends the workers that a test left because it hung: they would keep the next test's workers from starting, and the connection from closing. */
async function endLeftWorkers(connection: Connection): Promise<void> {
  const left = openWorkers.get(connection) ?? new Map<Worker, Promise<void>>();
  for (const worker of left.keys()) if (worker.getState() === 'RUNNING') worker.shutdown();
  await Promise.allSettled(left.values());
  openWorkers.delete(connection);
}

/** Stops a server that `startTemporal` started. */
export async function stopTemporal(environment: TestWorkflowEnvironment): Promise<void> {
  await endLeftWorkers(environment.nativeConnection);
  await environment.teardown();
}

/** The real workflows over activities made for a test, while `body` runs. */
export async function withWorkers<T>(
  { nativeConnection: connection, client }: Temporal,
  activities: Record<string, Record<string, (input: never) => Promise<unknown>>>,
  body: () => Promise<T>,
): Promise<T> {
  await endLeftWorkers(connection);
  const shared = { connection, shutdownForceTime: '10s' } as const;
  // A fake world has no Temporal to ask.
  const real = { awaitClosed: awaitClosed({ temporal: client }) };
  const workers = await Promise.all([
    Worker.create({ ...shared, taskQueue: 'trialgate', workflowBundle: await workflowBundle() }),
    ...Object.entries(activities).map(([taskQueue, each]) =>
      Worker.create({
        ...shared,
        taskQueue,
        activities: taskQueue === 'trialgate' ? { ...real, ...each } : each,
        maxHeartbeatThrottleInterval: '1s',
        defaultHeartbeatThrottleInterval: '1s',
      }),
    ),
  ]);
  const open = new Map(workers.map((worker) => [worker, worker.run()]));
  openWorkers.set(connection, open);
  try {
    return await body();
  } finally {
    for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    await Promise.all(open.values());
    if (openWorkers.get(connection) === open) openWorkers.delete(connection);
  }
}
