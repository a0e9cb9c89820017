import { CancellationScope, condition, executeChild, isCancellation, ParentClosePolicy, setHandler, sleep, workflowInfo } from '@temporalio/workflow';
import { store } from './activities.ts';
import { attributesOf } from './attributes.ts';
import { engineTroubleSignal } from './messages.ts';
import { FIRST_LOOK_MS, nextLook, type Look } from './next-look.ts';
import { inTurn, poolHolder, publishVersion } from './publish-version.ts';

export type PoolCare = {
  /** Waits for what is under way: a pool that is being mended is not let go of before. */
  settled: () => Promise<void>;
  /**
   * Looks now and then for replicas that were lost and answer again, while work needs them: no trial has to miss them. Each look is in the
   * run's history: there is none of a run that waits for a person.
   */
  during: <T>(work: () => Promise<T>, isPaused: () => boolean) => Promise<T>;
};

/** Gives engines that trials lost the pool's version again. */
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

/** Whether a replica has its version again. */
async function mend(runId: string): Promise<boolean> {
  const workflowId = poolHolder(runId);
  try {
    if (workflowInfo().workflowId === workflowId) return await restorePool(runId);
    const searchAttributes = attributesOf({ runId, phase: 'publish' });
    return await inTurn(() => executeChild(restorePool, { workflowId, args: [runId], parentClosePolicy: ParentClosePolicy.ABANDON, searchAttributes, staticSummary: 'engines that were lost' }));
  } catch {
    // The next trial that loses its engine asks again, or the next look; awaitPool's limit ends the wait.
    return false;
  }
}

/** What the pool should have is asked when its turn has come: a publication before may have changed it. The replicas that have it go on meanwhile. */
export async function restorePool(runId: string): Promise<boolean> {
  const version = await store.missingVersion({ runId });
  return version !== null && (await publishVersion({ runId, version, isMend: true })) > 0;
}
