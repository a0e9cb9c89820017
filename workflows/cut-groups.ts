import { getExternalWorkflowHandle } from '@temporalio/workflow';
import { closing } from './activities.ts';

/**
 * Cuts groups, whichever execution started them, and waits until their workflows have closed. After that none of their trials calls an engine,
 * and a resume can start the groups again under the same ids.
 */
export async function cutGroups(ids: readonly string[]): Promise<void> {
  await Promise.all(
    ids.map(async (id) => {
      await getExternalWorkflowHandle(id)
        .cancel()
        .catch(() => {});
      await closing.awaitClosed({ workflowId: id });
    }),
  );
}
