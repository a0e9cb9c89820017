import { CancellationScope, executeChild, isCancellation, ParentClosePolicy, setHandler, sleep, workflowInfo } from '@temporalio/workflow';
import { store, waiting } from './activities.ts';
import { attributesOf } from './attributes.ts';
import { engineTroubleSignal } from './messages.ts';
import { inTurn, poolHolder, publishVersion } from './publish-version.ts';

const LONGEST_PAUSE_MS = 600_000;

export type PoolCare = {
  /** Waits for what is under way: a pool that is being mended is not let go of before. */
  settled: () => Promise<void>;
  /** Brings each replica that was lost up to date as soon as it answers, until its scope is cancelled. */
  watch: () => Promise<void>;
};

/** Gives engines that trials lost the pool's version again. */
export function careForPool(runId: string): PoolCare {
  let mending: Promise<boolean> | undefined;
  const mendOnce = () => (mending ??= mend(runId).finally(() => (mending = undefined)));
  setHandler(engineTroubleSignal, () => void mendOnce());
  return {
    settled: () => CancellationScope.nonCancellable(async () => void (await mending)),
    watch: async () => {
      for (let failures = 0; ; ) {
        const since = Date.now();
        await isBack(runId);
        if (Date.now() - since > LONGEST_PAUSE_MS) failures = 0;
        failures = (await mendOnce()) ? 0 : failures + 1;
        // One that cannot be brought up to date is not tried again and again.
        if (failures > 0) await sleep(Math.min(LONGEST_PAUSE_MS, 5000 * 2 ** failures));
      }
    },
  };
}

async function isBack(runId: string): Promise<void> {
  try {
    await waiting('24h').awaitLostReplica({ runId });
  } catch (error) {
    if (isCancellation(error)) throw error;
  }
}

/** Whether all that were to be mended are. */
async function mend(runId: string): Promise<boolean> {
  const workflowId = poolHolder(runId);
  try {
    if (workflowInfo().workflowId === workflowId) return await restorePool(runId);
    const searchAttributes = attributesOf({ runId, phase: 'publish' });
    return await inTurn(() => executeChild(restorePool, { workflowId, args: [runId], parentClosePolicy: ParentClosePolicy.ABANDON, searchAttributes, staticSummary: 'engines that were lost' }));
  } catch {
    // The next trial that loses its engine asks again; awaitPool's limit ends the wait.
    return false;
  }
}

/** What the pool should have is asked when its turn has come: a publication before may have changed it. The replicas that have it go on meanwhile. */
export async function restorePool(runId: string): Promise<boolean> {
  const version = await store.missingVersion({ runId });
  if (version === null) return false;
  return (await publishVersion({ runId, version, isMend: true })).isWhole;
}
