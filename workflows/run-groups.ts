import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  CancellationScope,
  ChildWorkflowCancellationType,
  ParentClosePolicy,
  condition,
  isCancellation,
  setHandler,
  startChild,
} from '@temporalio/workflow';
import type { GroupPlan } from '../activities/rollout/group-plan.ts';
import { closing, store } from './activities.ts';
import { allOrNone } from './all-or-none.ts';
import { attributesOf } from './attributes.ts';
import { groupMovedSignal } from './messages.ts';
import { poolRepairs } from './repair-pool.ts';
import { rolloutGroup } from './rollout-group.ts';

/**
 * Runs the groups of an evaluation to their end, and repairs the pool when trials lose an engine. Returns at the deadline at the latest,
 * which moves with a group's. Fails when most trials failed for infrastructure reasons.
 */
export async function runGroups(runId: string, plans: GroupPlan[], deadlineSeconds: number): Promise<void> {
  const pool = poolRepairs(runId);
  try {
    const groups = plans.map((plan) => () => runEvaluated(plan));
    await withinDeadline(deadlineSeconds, () => allOrNone(groups));
  } catch (error) {
    // At the deadline the groups were cancelled and sealed their trials. A cancelled run stays cancelled.
    if (!isCancellation(error) || CancellationScope.current().consideredCancelled) throw error;
  } finally {
    await pool.settled();
  }
  await store.checkEvaluation({ groups: plans.map(({ id, size }) => ({ id, size })) });
}

async function withinDeadline(seconds: number, work: () => Promise<unknown>): Promise<void> {
  let deadline = Date.now() + seconds * 1000;
  setHandler(groupMovedSignal, ({ until }) => void (deadline = Math.max(deadline, Date.parse(until))));
  const working = new CancellationScope();
  const watch = new CancellationScope();
  void watch
    .run(async () => {
      for (let until = deadline; Date.now() < until; until = deadline)
        await condition(() => deadline !== until, until - Date.now());
      working.cancel();
    })
    .catch(() => {});
  try {
    await working.run(work);
  } finally {
    watch.cancel();
  }
}

/** A group of an earlier try of the evaluation may still run or be closing. This waits for it, then runs the group again for trials without an outcome. */
async function runEvaluated(plan: GroupPlan): Promise<void> {
  while (!(await startGroup(plan))) await closing.awaitClosed({ workflowId: plan.id });
}

/**
 * Runs a group of a rollout to the end of its workflow, which may outlive this one. When an earlier execution's workflow still has the
 * group's id, this waits until that one has closed. Only the store decides whether the group is over.
 */
export async function runGroup(plan: GroupPlan): Promise<void> {
  if (await startGroup(plan)) return;
  await closing.awaitClosed({ workflowId: plan.id });
}

/** Runs a group in a workflow that may outlive this one. Returns false when another workflow has its id. */
async function startGroup(plan: GroupPlan): Promise<boolean> {
  try {
    const child = await startChild(rolloutGroup, {
      workflowId: plan.id,
      args: [plan],
      parentClosePolicy: ParentClosePolicy.ABANDON,
      cancellationType: ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
      searchAttributes: attributesOf({
        runId: plan.runId,
        iteration: plan.iteration,
        version: plan.policyVersion,
        phase: plan.kind === 'eval' ? 'evaluation' : 'rollout',
      }),
      staticSummary: `${plan.kind} ${plan.task.split('/').at(-1)} × ${plan.size}`,
    });
    await child.result();
    return true;
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    return false;
  }
}
