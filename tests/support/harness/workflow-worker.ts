import { IllegalStateError } from '@temporalio/common';
import { TestWorkflowEnvironment } from '@temporalio/testing';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import path from 'node:path';
import { awaitClosed } from '../../../activities/temporal/await-closed.ts';
import { retryDroppedUpdates } from '../../../cli/run/retry-updates.ts';
import { TEMPORAL_POLLING } from '../../../cli/supervisor/components/temporal.ts';
import { workflowBundle } from '../../../cli/workflow-bundle.ts';

export type Temporal = Pick<TestWorkflowEnvironment, 'client' | 'nativeConnection' | 'address'>;

const temporalBinary = path.join(import.meta.dirname, '../../../.trialgate/venv/bin/temporal');

/** The options of the tests' client. */
const CLIENT = { interceptors: { workflow: [retryDroppedUpdates] } };

/** Starts a real Temporal server that keeps its data in memory, for a program or for one test file. */
export async function startTemporal(): Promise<TestWorkflowEnvironment> {
  installRuntime();
  return TestWorkflowEnvironment.createLocal({
    client: CLIENT,
    server: {
      executable: { type: 'existing-path', path: temporalBinary },
      searchAttributes: [],
      extraArgs: [
        ...TEMPORAL_POLLING,
        ...[
          'TrialgateRun=Keyword',
          'TrialgateIteration=Int',
          'TrialgatePolicyVersion=Int',
          'TrialgatePhase=Keyword',
        ].flatMap((attribute) => ['--search-attribute', attribute]),
      ],
    },
  });
}

/** Connects to a namespace of a server that others use too. */
export async function connectTemporal(address: string, namespace: string): Promise<TestWorkflowEnvironment> {
  installRuntime();
  return TestWorkflowEnvironment.createFromExistingServer({ address, namespace, client: CLIENT });
}

/** Installs the runtime once for the process, which several test files share. After a test that hangs it stays installed. */
export function installRuntime(): void {
  try {
    Runtime.install({ logger: new DefaultLogger('ERROR') });
  } catch (error) {
    if (!(error instanceof IllegalStateError)) throw error;
  }
}

type Connection = Temporal['nativeConnection'];

type RunningWorkers = Map<Worker, Promise<void>>;

/** The running workers by connection. The tests of a file share the one for workflows, because loading their code is most of a worker's start. */
const workflowWorkers = new Map<Connection, RunningWorkers>();
const activityWorkers = new Map<Connection, RunningWorkers>();

async function end(running: RunningWorkers = new Map<Worker, Promise<void>>()): Promise<void> {
  for (const worker of running.keys()) if (worker.getState() === 'RUNNING') worker.shutdown();
  await Promise.all(running.values());
}

/** Ends the workers of a test that hung: they would keep the next test's workers from starting. */
async function endLeftActivities(connection: Connection): Promise<void> {
  await end(activityWorkers.get(connection)).catch(() => {});
  activityWorkers.delete(connection);
}

/** Ends all workers, so that no worker takes a workflow's task until the next `withWorkers`. Open workers would also keep the connection from closing. */
export async function endWorkers({ nativeConnection: connection }: Pick<Temporal, 'nativeConnection'>): Promise<void> {
  await endLeftActivities(connection);
  await end(workflowWorkers.get(connection));
  workflowWorkers.delete(connection);
}

async function startWorkflows({ nativeConnection: connection, client }: Temporal): Promise<void> {
  if (workflowWorkers.has(connection)) return;
  const worker = await Worker.create({
    connection,
    namespace: client.options.namespace,
    taskQueue: 'trialgate',
    workflowBundle: await workflowBundle(),
    shutdownForceTime: '10s',
  });
  workflowWorkers.set(connection, new Map([[worker, worker.run()]]));
}

/** Ends the workers and the connections, and the server if `startTemporal` started it. */
export async function stopTemporal(environment: TestWorkflowEnvironment): Promise<void> {
  await endWorkers(environment);
  await environment.teardown();
}

/** Runs `body` with the real workflows over activities of a test. */
export async function withWorkers<T>(
  temporal: Temporal,
  activities: Record<string, Record<string, (input: never) => Promise<unknown>>>,
  body: () => Promise<T>,
): Promise<T> {
  const { nativeConnection: connection, client } = temporal;
  await endLeftActivities(connection);
  await startWorkflows(temporal);
  // A fake world has no Temporal, so this activity is the real one.
  const real = { awaitClosed: awaitClosed({ temporal: client }) };
  const workers = await Promise.all(
    Object.entries(activities).map(([taskQueue, each]) =>
      Worker.create({
        connection,
        namespace: client.options.namespace,
        taskQueue,
        activities: taskQueue === 'trialgate' ? { ...real, ...each } : each,
        shutdownForceTime: '10s',
        maxHeartbeatThrottleInterval: '1s',
        defaultHeartbeatThrottleInterval: '1s',
      }),
    ),
  );
  const running: RunningWorkers = new Map(workers.map((worker) => [worker, worker.run()]));
  activityWorkers.set(connection, running);
  try {
    return await body();
  } finally {
    await end(running);
    if (activityWorkers.get(connection) === running) activityWorkers.delete(connection);
  }
}
