import { CancellationScope, getExternalWorkflowHandle, workflowInfo } from '@temporalio/workflow';
import type { GroupPlan } from '../activities/group-plan.ts';
import type { Outcome } from '../store/tables/trials.ts';
import { store } from './activities.ts';
import { groupEndedSignal } from './messages.ts';
import { runTrial } from './run-trial.ts';

/**
 * The G trials of one task, side by side. It may outlive the iteration that started it, so its end is a row in the
 * store and a signal to the run, not only a result.
 */
export async function rolloutGroup(group: GroupPlan): Promise<Outcome[]> {
  const limits = await store.openGroup(group);
  const owner = workflowInfo().parent?.workflowId ?? group.runId;
  const root = CancellationScope.current();
  const outcomes = await CancellationScope.withTimeout(limits.groupSeconds * 1000, () =>
    Promise.all(
      Array.from({ length: group.size }, (_, member) => {
        const trialId = `${group.trialPrefix}-${member}`;
        return runTrial({ trialId, member, group, limits, owner }, () => root.consideredCancelled);
      }),
    ),
  );
  await CancellationScope.nonCancellable(async () => {
    await store.endGroup({ id: group.id });
    // The run may have ended meanwhile: the row in the store stands.
    await getExternalWorkflowHandle(group.runId).signal(groupEndedSignal, { id: group.id, outcomes }).catch(() => {});
  });
  return outcomes;
}
