import { CancellationScope, condition, executeChild, isCancellation, ParentClosePolicy, setHandler, sleep, workflowInfo } from '@temporalio/workflow';
import { store } from './activities.ts';
import { attributesOf } from './attributes.ts';
import { engineTroubleSignal } from './messages.ts';
import { FIRST_LOOK_MS, nextLook, type Look } from './next-look.ts';
import { inTurn, poolHolder, publishVersion } from './publish-version.ts';

export type PoolCare = {
  /** Waits for a repair under way, so that its pool is not released before. */
  settled: () => Promise<void>;
  /**
   * Polls for lost replicas that answer again while `work` runs, so that no trial has to miss them. Each poll is in the run's history, so
   * a paused run does not poll.
   */
  during: <T>(work: () => Promise<T>, isPaused: () => boolean) => Promise<T>;
};

/** Publishes the pool's version again to engines that trials lost. */
export function careForPool(runId: string): PoolCare {
  let mending: Promise<boolean> | undefined;
  const mendOnce = () => (mending ??= mend(runId).finally(() => (mending = undefined)));
  setHandler(engineTroubleSignal, () => void mendOnce());
  return {
    settled: () => CancellationScope.nonCancellable(async () => void (await mending)),
    during: async (work, isPaused) => {
      const watch = new CancellationScope();
      void watch.run(() => keepLooking(look, isPaused)).catch(() => {});
      try {
        return await work();
      } finally {
        watch.cancel();
      }
    },
  };

  async function look(): Promise<Look> {
    if (!(await isOneBack(runId))) return 'nothing';
    return (await mendOnce()) ? 'mended' : 'in vain';
  }
}

async function keepLooking(look: () => Promise<Look>, isPaused: () => boolean): Promise<never> {
  for (let pause = FIRST_LOOK_MS; ; pause = nextLook(pause, await look())) {
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
async function mend(runId: string): Promise<boolean> {
  const workflowId = poolHolder(runId);
  try {
    if (workflowInfo().workflowId === workflowId) return await restorePool(runId);
    const searchAttributes = attributesOf({ runId, phase: 'publish' });
    return await inTurn(() => executeChild(restorePool, { workflowId, args: [runId], parentClosePolicy: ParentClosePolicy.ABANDON, searchAttributes, staticSummary: 'engines that were lost' }));
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
