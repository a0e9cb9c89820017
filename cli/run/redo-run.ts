import proto from '@temporalio/proto';
import { randomUUID } from 'node:crypto';
import type { Client } from '@temporalio/client';
import { TrialgateError } from '../../store/errors.ts';

/**
 * Runs the last iteration again under a new take: what `temporal workflow reset --type FirstWorkflowTask
 * --reapply-exclude All` does to the run's newest execution. Old stop signals do not apply again.
 */
export async function redoRun(client: Client, runId: string): Promise<void> {
  const description = await client.workflow.getHandle(runId).describe().catch((error: unknown) => {
    throw new TrialgateError('not_found', `Temporal knows no run ${runId}`, { cause: error });
  });
  const execution = { workflowId: runId, runId: description.runId };
  const { namespace } = client.options;
  const { history } = await client.workflowService.getWorkflowExecutionHistory({ namespace, execution });
  const { EventType, ResetReapplyType, ResetReapplyExcludeType } = proto.temporal.api.enums.v1;
  const first = history?.events?.find((event) => event.eventType === EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED);
  if (!first?.eventId) throw new TrialgateError('bad_input', `run ${runId} has not begun: is a worker running?`);
  await client.workflowService.resetWorkflowExecution({
    namespace,
    workflowExecution: execution,
    reason: 'trialgate redo',
    requestId: randomUUID(),
    workflowTaskFinishEventId: first.eventId,
    resetReapplyType: ResetReapplyType.RESET_REAPPLY_TYPE_NONE,
    resetReapplyExcludeTypes: [
      ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
      ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
    ],
  });
}
