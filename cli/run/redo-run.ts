import type { Client } from '@temporalio/client';
import proto from '@temporalio/proto';
import { randomUUID } from 'node:crypto';
import { and, eq } from 'drizzle-orm';
import { lastTake } from '../../activities/run/run-position.ts';
import { readRun } from '../../activities/run/read-run.ts';
import { requireNotPruned } from '../../activities/run/missing-checkpoint.ts';
import { TrialgateError } from '../../core/errors.ts';
import { iterations } from '../../store/schema.ts';
import { NO_RELAY, requireSameModel } from './check-engines.ts';
import type { DeploymentClients } from './connect.ts';
import { markRunning } from './mark-running.ts';

/**
 * Runs the last iteration again under a new take. Returns a sentence about it.
 * @param relay the way to engines behind relay workers
 * @param meant the iteration and take that a person saw as the last
 * @throws TrialgateError `bad_input` when the run has begun another take than that, the version that it samples from was pruned, or an engine has another model; then nothing changes
 */
export async function redoRun(
  { client, db }: DeploymentClients,
  runId: string,
  relay = NO_RELAY,
  meant: Meant = {},
): Promise<string> {
  const description = await client.workflow
    .getHandle(runId)
    .describe()
    .catch(async (error: unknown) => {
      await readRun(db, runId);
      throw new TrialgateError('not_found', `Temporal knows no run ${runId}`, { cause: error });
    });
  const execution = { workflowId: runId, runId: description.runId };
  const last = await lastTake(db, runId);
  requireMeant(runId, last, meant);
  if (last) await requireNotPruned(db, runId, last.policyVersion);
  await requireSameModel(db, await readRun(db, runId), relay);
  const firstTask = await findFirstTask(client, execution);
  // The engines may have taken their time.
  requireMeant(runId, await lastTake(db, runId), { iteration: last?.iteration, take: last?.take });
  if (last) {
    const takes = and(eq(iterations.runId, runId), eq(iterations.iteration, last.iteration));
    await db.update(iterations).set({ status: 'superseded' }).where(takes);
  }
  await markRunning(db, runId);
  await resetTo(client, execution, firstTask);
  return `run ${runId} starts its last iteration again`;
}

type Meant = { iteration?: number; take?: number };

function requireMeant(runId: string, last: Required<Meant> | undefined, { iteration, take }: Meant): void {
  if ((iteration ?? last?.iteration) === last?.iteration && (take ?? last?.take) === last?.take) return;
  const now = last ? `its last one is iteration ${last.iteration}, take ${last.take}` : 'it has no iteration yet';
  throw new TrialgateError('bad_input', `run ${runId} has gone on, and nothing was changed: ${now}`);
}

type Execution = { workflowId: string; runId: string };

/** Returns the event id of the first completed workflow task. @throws TrialgateError when no worker has begun the execution */
async function findFirstTask(client: Client, execution: Execution) {
  const { namespace } = client.options;
  const { history } = await client.workflowService.getWorkflowExecutionHistory({ namespace, execution });
  const { EVENT_TYPE_WORKFLOW_TASK_COMPLETED: completed } = proto.temporal.api.enums.v1.EventType;
  const first = history?.events?.find((event) => event.eventType === completed);
  if (!first?.eventId)
    throw new TrialgateError('bad_input', `run ${execution.workflowId} has not begun: is a worker running?`);
  return first.eventId;
}

/** Resets like `temporal workflow reset --type FirstWorkflowTask --reapply-exclude All`: earlier updates and signals do not apply again. */
async function resetTo(
  client: Client,
  workflowExecution: Execution,
  workflowTaskFinishEventId: Awaited<ReturnType<typeof findFirstTask>>,
): Promise<void> {
  const { ResetReapplyType, ResetReapplyExcludeType } = proto.temporal.api.enums.v1;
  await client.workflowService.resetWorkflowExecution({
    namespace: client.options.namespace,
    workflowExecution,
    reason: 'redo by a person',
    requestId: randomUUID(),
    workflowTaskFinishEventId,
    resetReapplyType: ResetReapplyType.RESET_REAPPLY_TYPE_NONE,
    resetReapplyExcludeTypes: [
      ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
      ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
    ],
  });
}
