import { Client, Connection } from '@temporalio/client';
import { DefaultLogger, NativeConnection, Runtime, Worker, type WorkerOptions } from '@temporalio/worker';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { hostname } from 'node:os';
import { Graders } from '../activities/reward/graders.ts';
import { HostSandboxes } from '../activities/sandbox/host-sandboxes.ts';
import { createActivities } from '../activities/index.ts';
import { isolation, requireBubblewrap } from '../activities/sandbox/isolation.ts';
import { MemoryGate } from '../activities/sandbox/memory-gate.ts';
import { startsOfHost } from '../activities/sandbox/starts.ts';
import { sweepSandboxes } from '../activities/sandbox/sweep-sandboxes.ts';
import { WarmSandboxes } from '../activities/sandbox/warm/warm-sandboxes.ts';
import type { Log, LogFormat } from '../core/log.ts';
import { TrialgateError } from '../core/errors.ts';
import { openDatabase, type Database } from '../store/database.ts';
import { aboutActivity, followActivity } from './activity-log.ts';
import { followRuns } from './log/follow-runs.ts';
import { makePrivate } from './private-folder.ts';
import { processLog } from './process-log.ts';
import { registerSearchAttributes } from './search-attributes.ts';
import { sandboxSlotOptions } from './sandbox-slots.ts';
import { SANDBOX_QUEUE, TASK_QUEUE } from '../core/task-queues.ts';
import { temporalLogger } from './temporal-logger.ts';
import { workflowBundle } from './workflow-bundle.ts';

const LOGGERS_END_MS = 5_000;

export type WorkerSettings = {
  only?: 'workflows' | 'activities';
  temporalAddress: string;
  databaseUrl: string;
  gatewayUrls: readonly string[];
  home: string;
  secret: string;
  /** Lets agents run without bubblewrap. */
  unsandboxed: boolean;
  maxSandboxes: number;
  sandboxesPerSecond: number;
  /** The number of sandboxes that are started before trials ask for them. */
  warmSandboxes: number;
  /** Lets new trials wait while the host is short of memory. */
  waitForMemory: boolean;
  /** Where it answers Prometheus, as `IP:port`; null for nowhere. */
  metricsAddress: string | null;
  logFormat: LogFormat;
};

/** Runs workflows, activities or both until `signal` aborts. Then activities get a few seconds to end before they are cancelled. */
export async function runWorker(settings: WorkerSettings, signal: AbortSignal): Promise<void> {
  const name =
    settings.only === undefined ? 'worker' : `${settings.only === 'workflows' ? 'workflow' : 'activity'}-worker`;
  const log = processLog(name, settings.logFormat, aboutActivity);
  if (settings.only !== 'workflows') requireBubblewrap(await isolation(), settings.unsandboxed);
  makePrivate(settings.home);
  installRuntime(settings.metricsAddress, settings.logFormat === 'json' ? log : null);
  const connection = await connect(settings.temporalAddress, signal);
  const clientConnection = await Connection.connect({ address: settings.temporalAddress });
  const client = new Client({ connection: clientConnection });
  await registerSearchAttributes(clientConnection);
  const db = openDatabase(settings.databaseUrl, { maxConnections: 16 });
  // One for the locks of all loggers and some for reading, which nothing else may wait for.
  const forLoggers = openDatabase(settings.databaseUrl, { maxConnections: 5 });
  const graders = new Graders(settings.home);
  const ended = new AbortController();
  let logging = Promise.resolve();
  const { home, warmSandboxes: count } = settings;
  const warm = count > 0 ? new WarmSandboxes({ home, count, starts: startsOfHost() }) : null;
  try {
    const options = await optionsOf(settings, client, db, graders, warm);
    const workers = await Promise.all(options.map((each) => Worker.create({ connection, ...each })));
    console.log(`worker ready: ${workers.map((worker) => worker.options.taskQueue).join(', ')}`);
    const stop = () => workers.forEach((worker) => worker.getState() === 'RUNNING' && worker.shutdown());
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) return;
    if (settings.only !== 'workflows')
      logging = followRuns(
        { db: forLoggers, home: settings.home, report: (line) => console.warn(line) },
        AbortSignal.any([signal, ended.signal]),
      ).catch((error: unknown) => console.error('the loggers ended:', error));
    await Promise.all(workers.map((worker) => worker.run()));
  } finally {
    ended.abort();
    // Loggers end their programs within seconds. A store that does not answer must not make that longer.
    const logged = Promise.race([logging, delay(LOGGERS_END_MS, undefined, { ref: false })]);
    await Promise.all([graders.close(), warm?.close(), logged]);
    await clientConnection.close();
    await connection.close();
    await db.$client.end();
    await Promise.race([forLoggers.$client.end(), delay(LOGGERS_END_MS, undefined, { ref: false })]);
  }
}

/** @throws TrialgateError when the address for Prometheus is taken or is none of this machine */
function installRuntime(metricsAddress: string | null, log: Log | null): void {
  // The native part of the SDK writes lines of its own, unless they are forwarded.
  const logging = log && ({ filter: { core: 'WARN', other: 'ERROR' }, forward: {} } as const);
  const metrics = metricsAddress !== null && {
    prometheus: {
      bindAddress: metricsAddress,
      countersTotalSuffix: true,
      unitSuffix: true,
      useSecondsForDurations: true,
    },
  };
  try {
    Runtime.install({
      logger: log ? temporalLogger(log) : new DefaultLogger('WARN'),
      shutdownSignals: [],
      telemetryOptions: { ...(logging && { logging }), ...(metrics && { metrics }) },
    });
  } catch (error) {
    throw new TrialgateError(
      'bad_input',
      `metrics_address: nothing can listen on ${metricsAddress} (${error instanceof Error ? error.message : String(error)}): name another port, or an address of this machine`,
    );
  }
}

async function optionsOf(
  settings: WorkerSettings,
  temporal: Client,
  db: Database,
  graders: Graders,
  warm: WarmSandboxes | null,
): Promise<WorkerOptions[]> {
  const { only, gatewayUrls, home, secret, maxSandboxes, sandboxesPerSecond, waitForMemory } = settings;
  const shared = { shutdownGraceTime: '2s', shutdownForceTime: '10s' } satisfies Partial<WorkerOptions>;
  const options: WorkerOptions[] = [];
  if (only !== 'activities') options.push({ ...shared, taskQueue: TASK_QUEUE, workflowBundle: await workflowBundle() });
  if (only !== 'workflows') {
    const hostQueue = `host-${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`;
    const sandboxes = new HostSandboxes(home, maxSandboxes, { warm });
    await sweepSandboxes(home);
    console.log((await isolation()).statement);
    const { general, sandbox, host } = createActivities({
      db,
      temporal,
      gatewayUrls,
      home,
      secret,
      hostQueue,
      sandboxes,
      graders,
    });
    const interceptors = { activity: [followActivity] };
    const heartbeats = { maxHeartbeatThrottleInterval: '2s', defaultHeartbeatThrottleInterval: '2s' } as const;
    options.push({
      ...shared,
      ...heartbeats,
      interceptors,
      taskQueue: TASK_QUEUE,
      activities: general,
      maxConcurrentActivityTaskExecutions: 2000,
    });
    options.push({
      ...shared,
      ...heartbeats,
      interceptors,
      taskQueue: SANDBOX_QUEUE,
      activities: sandbox,
      ...sandboxSlotOptions(sandboxes.slots, sandboxesPerSecond, waitForMemory ? new MemoryGate() : null),
    });
    options.push({
      ...shared,
      ...heartbeats,
      interceptors,
      taskQueue: hostQueue,
      activities: host,
      maxConcurrentActivityTaskExecutions: 2 * maxSandboxes,
    });
  }
  return options;
}

/** Connects to Temporal, and retries because it may start after its workers. */
async function connect(address: string, signal: AbortSignal): Promise<NativeConnection> {
  for (let waited = 0; ; waited++) {
    signal.throwIfAborted();
    try {
      return await NativeConnection.connect({ address });
    } catch (error) {
      if (waited % 10 === 0)
        console.log(`waiting for Temporal at ${address}: ${error instanceof Error ? error.message : error}`);
      await delay(1000, undefined, { signal });
    }
  }
}
