import { ActivityCancellationType, proxyActivities } from '@temporalio/workflow';
import type { GpuActivities } from '../activities/gpu-contract.ts';
import type { Activities } from '../activities/index.ts';

export const STORE_SECONDS = 3600;

/** Reads and writes of the store: quick, and worth trying for as long as a database may be away. */
export const store = proxyActivities<Activities>({
  startToCloseTimeout: '60s',
  scheduleToCloseTimeout: STORE_SECONDS * 1000,
  retry: { initialInterval: '500ms', maximumInterval: '10s' },
});

/** Makes a batch, which may ask a teacher about every sample: as long as the store is waited for, while it says that it lives. */
export const assembling = proxyActivities<Pick<Activities, 'assembleBatch'>>({
  startToCloseTimeout: STORE_SECONDS * 1000,
  scheduleToCloseTimeout: STORE_SECONDS * 1000,
  heartbeatTimeout: '60s',
  retry: { initialInterval: '500ms', maximumInterval: '10s' },
});

/** Waits for somebody else, for at most `limit`. */
export const waiting = (limit: string | number) =>
  proxyActivities<Activities>({
    startToCloseTimeout: limit,
    scheduleToCloseTimeout: limit,
    heartbeatTimeout: '20s',
    retry: { initialInterval: '1s', maximumInterval: '5s' },
  });

/** Waits for another workflow to close. Each try ends after a minute and Temporal retries it. Retries add no events to the history. */
export const closing = proxyActivities<Pick<Activities, 'awaitClosed'>>({
  startToCloseTimeout: '90s',
  scheduleToCloseTimeout: '7d',
  retry: { initialInterval: '200ms', maximumInterval: '1s' },
});

/**
 * Trials wait in this queue until a host has room for their sandbox. An opening that has begun is waited for when it is
 * cancelled: what it opened would have nobody to close it.
 */
export const opening = (limit: number, summary: string) =>
  proxyActivities<Pick<Activities, 'openTrial'>>({
    taskQueue: 'sandboxes',
    summary,
    startToCloseTimeout: limit,
    scheduleToCloseTimeout: limit,
    heartbeatTimeout: '20s',
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { initialInterval: '1s', maximumInterval: '5s' },
  });

/**
 * The agent and its verifier run where their sandbox is. They are not retried: a host that is lost takes its
 * sandbox along, and the trial starts anew under its next attempt.
 */
export const onHost = (taskQueue: string, summary: string) =>
  proxyActivities<Activities>({
    taskQueue,
    summary,
    scheduleToStartTimeout: '60s',
    // The workflow's own timers end an agent, the heartbeat a lost host.
    startToCloseTimeout: '7d',
    heartbeatTimeout: '20s',
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { maximumAttempts: 1 },
  });

/** Python, on the machine with the trainer's memory. A worker that dies is noticed by its missing heartbeat. */
export const gpu = (limitSeconds: number) =>
  proxyActivities<GpuActivities>({
    taskQueue: 'gpu',
    scheduleToCloseTimeout: limitSeconds * 1000,
    heartbeatTimeout: '20s',
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { initialInterval: '1s', maximumInterval: '30s', maximumAttempts: 10 },
  });
