import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  CancellationScope,
  ChildWorkflowCancellationType,
  ParentClosePolicy,
  isCancellation,
  setHandler,
  startChild,
} from '@temporalio/workflow';
import type { GroupPlan } from '../activities/group-plan.ts';
import { store, waiting } from './activities.ts';
import { engineTroubleSignal } from './messages.ts';
import { publish } from './publish-version.ts';
import { rolloutGroup } from './rollout-group.ts';

/** Runs groups to their end, and mends the engine pool when trials lose an engine. Returns at the deadline at the latest. */
export async function runGroups(runId: string, policyVersion: number, plans: GroupPlan[], deadlineSeconds: number): Promise<void> {
  let mending: Promise<void> | undefined;
  setHandler(engineTroubleSignal, () => {
    mending ??= mendPool(runId, policyVersion).finally(() => (mending = undefined));
  });
  try {
    await CancellationScope.withTimeout(deadlineSeconds * 1000, () => Promise.all(plans.map(runGroup)));
  } catch (error) {
    // At the deadline the groups were cancelled and sealed what they had; a cancelled run goes on being cancelled.
    if (!isCancellation(error) || CancellationScope.current().consideredCancelled) throw error;
  } finally {
    // A pool that is being mended is not let go of before.
    await CancellationScope.nonCancellable(async () => mending);
  }
}

async function runGroup(plan: GroupPlan): Promise<void> {
  try {
    const child = await startChild(rolloutGroup, {
      workflowId: plan.id,
      args: [plan],
      parentClosePolicy: ParentClosePolicy.ABANDON,
      cancellationType: ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
      staticSummary: `${plan.kind} ${plan.task.split('/').at(-1)} × ${plan.size}`,
    });
    await child.result();
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    await waiting('24h').awaitGroup({ id: plan.id });
  }
}

/** A publication that fails here is tried again by the next trial that loses its engine. */
async function mendPool(runId: string, policyVersion: number): Promise<void> {
  try {
    if (!(await store.checkPool({ runId }))) await publish({ runId, version: policyVersion });
  } catch {
    // The next trial that loses its engine asks again; awaitPool's limit ends the wait.
  }
}
