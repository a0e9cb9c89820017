import { CancellationScope, executeChild, ParentClosePolicy, setHandler, workflowInfo } from '@temporalio/workflow';
import { store } from './activities.ts';
import { engineTroubleSignal } from './messages.ts';
import { inTurn, poolHolder, publishVersion } from './publish-version.ts';

/** Gives engines that trials lost the pool's version again. Returns a wait for what is under way: a pool that is being mended is not let go of before. */
export function mendWhenAsked(runId: string): () => Promise<void> {
  let mending: Promise<void> | undefined;
  setHandler(engineTroubleSignal, () => {
    mending ??= mend(runId).finally(() => (mending = undefined));
  });
  return () => CancellationScope.nonCancellable(async () => mending);
}

async function mend(runId: string): Promise<void> {
  const workflowId = poolHolder(runId);
  try {
    if (workflowInfo().workflowId === workflowId) return await restorePool(runId);
    await inTurn(() => executeChild(restorePool, { workflowId, args: [runId], parentClosePolicy: ParentClosePolicy.ABANDON, staticSummary: 'engines that were lost' }));
  } catch {
    // The next trial that loses its engine asks again; awaitPool's limit ends the wait.
  }
}

/** What the pool should have is asked when its turn has come: a publication before may have changed it. */
export async function restorePool(runId: string): Promise<void> {
  const version = await store.missingVersion({ runId });
  if (version !== null) await publishVersion({ runId, version });
}
