import { CancellationScope, setHandler } from '@temporalio/workflow';
import { store } from './activities.ts';
import { engineTroubleSignal } from './messages.ts';
import { publish } from './publish-version.ts';

/** Gives engines that trials lost the pool's version again. Returns a wait for what is under way: a pool that is being mended is not let go of before. */
export function mendWhenAsked(runId: string): () => Promise<void> {
  let mending: Promise<void> | undefined;
  setHandler(engineTroubleSignal, () => {
    mending ??= mend(runId).finally(() => (mending = undefined));
  });
  return () => CancellationScope.nonCancellable(async () => mending);
}

async function mend(runId: string): Promise<void> {
  try {
    const version = await store.missingVersion({ runId });
    if (version !== null) await publish({ runId, version });
  } catch {
    // The next trial that loses its engine asks again; awaitPool's limit ends the wait.
  }
}
