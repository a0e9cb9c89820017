import { ActivityCancellationType, proxyActivities } from '@temporalio/workflow';
import type { GpuActivities } from '../core/gpu-contract.ts';
import type { GeneralActivities, HostActivities, SandboxActivities } from '../activities/index.ts';
import { SANDBOX_QUEUE } from '../core/task-queues.ts';

export const STORE_SECONDS = 3600;

/** Reads and writes of the store. They are quick, and are retried for as long as a database may be away. */
export const store = proxyActivities<GeneralActivities>({
  startToCloseTimeout: '60s',
  scheduleToCloseTimeout: STORE_SECONDS * 1000,
  retry: { initialInterval: '500ms', maximumInterval: '10s' },
});

/** Makes a batch. It may ask a teacher about every sample, so it has as much time as the store, while it sends heartbeats. */
export const assembling = proxyActivities<Pick<GeneralActivities, 'assembleBatch'>>({
  startToCloseTimeout: STORE_SECONDS * 1000,
  scheduleToCloseTimeout: STORE_SECONDS * 1000,
  heartbeatTimeout: '60s',
  retry: { initialInterval: '500ms', maximumInterval: '10s' },
});

/** Opens a run. It reads the run's rows, and may install the packages of its agents and rewards, while it sends heartbeats. */
export const preparing = proxyActivities<Pick<GeneralActivities, 'prepareRun'>>({
  startToCloseTimeout: STORE_SECONDS * 1000,
  scheduleToCloseTimeout: STORE_SECONDS * 1000,
  heartbeatTimeout: '60s',
  retry: { initialInterval: '500ms', maximumInterval: '10s' },
});

/** Activities that wait for somebody else, for at most `limit`. */
export const waiting = (limit: string | number) =>
  proxyActivities<GeneralActivities>({
    startToCloseTimeout: limit,
    scheduleToCloseTimeout: limit,
    heartbeatTimeout: '20s',
    retry: { initialInterval: '1s', maximumInterval: '5s' },
  });

/** Follows what a program outside does with the trials of a group. It may take days, and every worker can go on with it. */
export const external = proxyActivities<Pick<GeneralActivities, 'followExternalGroup'>>({
  startToCloseTimeout: '10m',
  heartbeatTimeout: '20s',
  retry: { initialInterval: '1s', maximumInterval: '10s' },
});

/** Waits for another workflow to close. Each try ends after a minute and Temporal retries it. Retries add no events to the history. */
export const closing = proxyActivities<Pick<GeneralActivities, 'awaitClosed'>>({
  startToCloseTimeout: '90s',
  scheduleToCloseTimeout: '7d',
  retry: { initialInterval: '200ms', maximumInterval: '1s' },
});

/**
 * The activities of a blocked run while it waits for a person. Each is tried until it succeeds, because the store may be the cause of the block, or until the
 * run is resumed: a try that has begun is then waited for, so that it cannot release engines that the run has taken again.
 */
export const unattended = proxyActivities<Pick<GeneralActivities, 'listRunningGroups' | 'releaseUnusedPool'>>({
  startToCloseTimeout: '60s',
  cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
  retry: { initialInterval: '1s', maximumInterval: '30s' },
});

/**
 * Trials wait in this queue until a host has a slot for their sandbox. When an opening that has begun is cancelled, it is waited for,
 * because nobody else would close what it opened.
 */
export const opening = (limit: number, summary: string) =>
  proxyActivities<SandboxActivities>({
    taskQueue: SANDBOX_QUEUE,
    summary,
    startToCloseTimeout: limit,
    scheduleToCloseTimeout: limit,
    heartbeatTimeout: '20s',
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { initialInterval: '1s', maximumInterval: '5s' },
  });

/**
 * The agent and its verifier run on the host of their sandbox. They are not retried: a lost host loses its sandbox, and the trial starts
 * again under its next attempt.
 */
export const onHost = (taskQueue: string, summary: string) =>
  proxyActivities<HostActivities>({
    taskQueue,
    summary,
    scheduleToStartTimeout: '60s',
    // The workflow's own timers end an agent, and the heartbeat timeout ends the wait for a lost host.
    startToCloseTimeout: '7d',
    heartbeatTimeout: '20s',
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { maximumAttempts: 1 },
  });

/** The Python activities, on the machine that has the trainer. A missing heartbeat shows that a worker has died. */
export const gpu = (limitSeconds: number) =>
  proxyActivities<GpuActivities>({
    taskQueue: 'gpu',
    scheduleToCloseTimeout: limitSeconds * 1000,
    heartbeatTimeout: '20s',
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { initialInterval: '1s', maximumInterval: '30s', maximumAttempts: 10 },
  });
