import {
  CancellationScope,
  condition,
  executeChild,
  isCancellation,
  ParentClosePolicy,
  setHandler,
  sleep,
  workflowInfo,
} from '@temporalio/workflow';
import { store } from './activities.ts';
import { attributesOf } from './attributes.ts';
import { engineTroubleSignal } from './messages.ts';
import { FIRST_POLL_MS, poolPollInterval, type PollResult } from './pool-poll-interval.ts';
import { inTurn, poolHolder, publishVersion } from './publish-version.ts';

export type PoolRepairs = {
  /** Waits for a repair under way, so that its pool is not released before. */
  settled: () => Promise<void>;
  /**
   * Polls for lost replicas that answer again while `work` runs, so that no trial has to miss them. Each poll is in the run's history, so
   * a paused run does not poll.
   */
  during: <T>(work: () => Promise<T>, isPaused: () => boolean) => Promise<T>;
};

/** Publishes the pool's version again to engines that trials lost. */
export function poolRepairs(runId: string): PoolRepairs {
  let repairing: Promise<boolean> | undefined;
  const repairOnce = () => (repairing ??= repair(runId).finally(() => (repairing = undefined)));
  setHandler(engineTroubleSignal, () => void repairOnce());
  return {
    settled: () => CancellationScope.nonCancellable(async () => void (await repairing)),
    during: async (work, isPaused) => {
      const watch = new CancellationScope();
      void watch.run(() => keepPolling(poll, isPaused)).catch(() => {});
      try {
        return await work();
      } finally {
        watch.cancel();
      }
    },
  };

  async function poll(): Promise<PollResult> {
    if (!(await isOneBack(runId))) return 'nothing';
    return (await repairOnce()) ? 'repaired' : 'failed';
  }
}

async function keepPolling(poll: () => Promise<PollResult>, isPaused: () => boolean): Promise<never> {
  for (let pause = FIRST_POLL_MS; ; pause = poolPollInterval(pause, await poll())) {
    await condition(() => !isPaused());
    await sleep(pause);
  }
}

async function isOneBack(runId: string): Promise<boolean> {
  try {
    return await store.hasLostReplica({ runId });
  } catch (error) {
    if (isCancellation(error)) throw error;
    return false;
  }
}

/** Returns true when a replica got its version again. */
async function repair(runId: string): Promise<boolean> {
  const workflowId = poolHolder(runId);
  try {
    if (workflowInfo().workflowId === workflowId) return await restorePool(runId);
    const searchAttributes = attributesOf({ runId, phase: 'publish' });
    return await inTurn(() =>
      executeChild(restorePool, {
        workflowId,
        args: [runId],
        parentClosePolicy: ParentClosePolicy.ABANDON,
        searchAttributes,
        staticSummary: 'engines that were lost',
      }),
    );
  } catch {
    // The next trial that loses its engine asks for another repair, and so does the next poll. The limit of awaitPool ends the wait.
    return false;
  }
}

/**
 * Publishes the pool's version to its lost replicas while the others go on. It reads that version when its turn has come, because a
 * publication before may have changed it.
 */
export async function restorePool(runId: string): Promise<boolean> {
  const version = await store.missingVersion({ runId });
  return version !== null && (await publishVersion({ runId, version, isMend: true })) > 0;
}
