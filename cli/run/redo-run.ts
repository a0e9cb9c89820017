import proto from '@temporalio/proto';
import { randomUUID } from 'node:crypto';
import { and, desc, eq } from 'drizzle-orm';
import { TrialgateError } from '../../store/errors.ts';
import { iterations } from '../../store/schema.ts';
import type { Connected } from './connect.ts';
import { markRunning } from './mark-running.ts';

/**
 * Runs the last iteration again under a new take: what `temporal workflow reset --type FirstWorkflowTask
 * --reapply-exclude All` does to the run's newest execution. Old stop signals do not apply again.
 */
export async function redoRun({ client, db }: Connected, runId: string): Promise<void> {
  const description = await client.workflow.getHandle(runId).describe().catch((error: unknown) => {
    throw new TrialgateError('not_found', `Temporal knows no run ${runId}`, { cause: error });
  });
  const execution = { workflowId: runId, runId: description.runId };
  const { namespace } = client.options;
  const { history } = await client.workflowService.getWorkflowExecutionHistory({ namespace, execution });
  const { EventType, ResetReapplyType, ResetReapplyExcludeType } = proto.temporal.api.enums.v1;
  const first = history?.events?.find((event) => event.eventType === EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED);
  if (!first?.eventId) throw new TrialgateError('bad_input', `run ${runId} has not begun: is a worker running?`);
  const [last] = await db.select().from(iterations).where(eq(iterations.runId, runId)).orderBy(desc(iterations.iteration)).limit(1);
  if (last) {
    const takes = and(eq(iterations.runId, runId), eq(iterations.iteration, last.iteration));
    await db.update(iterations).set({ status: 'superseded' }).where(takes);
  }
  await markRunning(db, runId);
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
