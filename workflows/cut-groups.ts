import { getExternalWorkflowHandle } from '@temporalio/workflow';
import { closing, unattended } from './activities.ts';

/**
 * Cuts all groups of a run, whichever execution started them, and waits until their workflows have closed. After that none of its trials
 * calls an engine, and a resume can start the groups again under the same ids. Returns true when there were any.
 */
export async function cutGroups(runId: string): Promise<boolean> {
  const ids = await unattended.listRunningGroups({ runId });
  await Promise.all(
    ids.map(async (id) => {
      await getExternalWorkflowHandle(id)
        .cancel()
        .catch(() => {});
      await closing.awaitClosed({ workflowId: id });
    }),
  );
  return ids.length > 0;
}
