import { asyncLocalStorage } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import type { Deps } from '../deps.ts';

/**
 * Fails when Temporal does not wait for this try of an activity any more: the try took longer than its limit, so another one has begun or the
 * workflow has gone on. A call outside of an activity has no tries.
 */
export async function requireAwaited({ temporal }: Pick<Deps, 'temporal'>): Promise<void> {
  const info = asyncLocalStorage.getStore()?.info;
  if (!info?.workflowExecution) return;
  const { activityId, attempt, workflowExecution: of } = info;
  const { raw } = await temporal.workflow.getHandle(of.workflowId, of.runId).describe();
  if (raw.pendingActivities?.some((each) => each.activityId === activityId && each.attempt === attempt)) return;
  throw ApplicationFailure.retryable(`Temporal does not wait for this try of ${info.activityType} any more`);
}
