import { CancellationScope, executeChild, isCancellation, ParentClosePolicy, setHandler, sleep, workflowInfo } from '@temporalio/workflow';
import { store } from './activities.ts';
import { attributesOf } from './attributes.ts';
import { engineTroubleSignal } from './messages.ts';
import { inTurn, poolHolder, publishVersion } from './publish-version.ts';

/** Each look is in the run's history. */
const [FIRST_LOOK_MS, LOOK_MS] = [10_000, 60_000];

export type PoolCare = {
  /** Waits for what is under way: a pool that is being mended is not let go of before. */
  settled: () => Promise<void>;
  /** Looks now and then for replicas that were lost and answer again, until its scope is cancelled: no trial needs to miss them. */
  watch: () => Promise<void>;
};

/** Gives engines that trials lost the pool's version again. */
export function careForPool(runId: string): PoolCare {
  let mending: Promise<void> | undefined;
  const mendOnce = () => (mending ??= mend(runId).finally(() => (mending = undefined)));
  setHandler(engineTroubleSignal, () => void mendOnce());
  return {
    settled: () => CancellationScope.nonCancellable(async () => mending),
    watch: async () => {
      for (let pause = FIRST_LOOK_MS; ; pause = Math.min(2 * pause, LOOK_MS)) {
        await sleep(pause);
        if (await isOneBack(runId)) await mendOnce();
      }
    },
  };
}

async function isOneBack(runId: string): Promise<boolean> {
  try {
    return await store.hasLostReplica({ runId });
  } catch (error) {
    if (isCancellation(error)) throw error;
    return false;
  }
}

async function mend(runId: string): Promise<void> {
  const workflowId = poolHolder(runId);
  try {
    if (workflowInfo().workflowId === workflowId) return await restorePool(runId);
    const searchAttributes = attributesOf({ runId, phase: 'publish' });
    await inTurn(() => executeChild(restorePool, { workflowId, args: [runId], parentClosePolicy: ParentClosePolicy.ABANDON, searchAttributes, staticSummary: 'engines that were lost' }));
  } catch {
    // The next trial that loses its engine asks again, or the next look; awaitPool's limit ends the wait.
  }
}

/** What the pool should have is asked when its turn has come: a publication before may have changed it. The replicas that have it go on meanwhile. */
export async function restorePool(runId: string): Promise<void> {
  const version = await store.missingVersion({ runId });
  if (version !== null) await publishVersion({ runId, version, isMend: true });
}
