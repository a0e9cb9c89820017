import { WorkflowExecutionAlreadyStartedError, WorkflowIdReusePolicy, WorkflowNotFoundError } from '@temporalio/common';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { eq } from 'drizzle-orm';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { TrialgateError } from '../../core/errors.ts';
import { requireRunId } from '../../core/ids.ts';
import { runs } from '../../store/schema.ts';
import type { RunProgress } from '../../workflows/run-execution.ts';
import type { trainRun } from '../../workflows/train-run.ts';
import { TASK_QUEUE } from '../../core/task-queues.ts';
import type { DeploymentClients } from './connect.ts';

export type RunHandle = WorkflowHandle<typeof trainRun>;

/** Starts the run's workflow, whose id is the run's. A run that is under way is not started twice. */
export async function startRun(
  client: Client,
  runId: string,
  config: RunConfig,
  progress?: RunProgress,
): Promise<RunHandle> {
  try {
    return await client.workflow.start<typeof trainRun>('trainRun', {
      workflowId: runId,
      taskQueue: TASK_QUEUE,
      args: progress ? [config, progress] : [config],
      workflowIdReusePolicy: progress ? WorkflowIdReusePolicy.ALLOW_DUPLICATE : WorkflowIdReusePolicy.REJECT_DUPLICATE,
      staticSummary: `train ${config.model.split('/').at(-1)} for ${config.iterations} iterations`,
    });
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    if (!progress) throw nameTaken(runId, { cause: error });
    throw new TrialgateError('bad_input', `run ${runId} exists: it is running already`, { cause: error });
  }
}

/**
 * @param verb what can be done with a run that has this name
 * @throws TrialgateError `bad_input` when a new run cannot have this name, because its form is wrong or a run has it
 */
export async function requireFreeRun(
  { client, db }: DeploymentClients,
  runId: string,
  verb: ForNamed = 'resume',
): Promise<void> {
  requireRunId(runId);
  const [known] = await db.select({ status: runs.status }).from(runs).where(eq(runs.id, runId));
  if (known?.status === 'completed' && verb === 'resume')
    throw new TrialgateError(
      'bad_input',
      `run ${runId} exists and has completed: choose another --run ("npx trialgate show ${runId}" shows it)`,
    );
  if (known || (await isKnown(client, runId))) throw nameTaken(runId, { verb });
}

/** Temporal knows a run that no worker has prepared yet. */
async function isKnown(client: Client, runId: string): Promise<boolean> {
  try {
    await client.workflow.getHandle(runId).describe();
    return true;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return false;
    throw error;
  }
}

type ForNamed = 'resume' | 'evaluate';

const nameTaken = (runId: string, { verb = 'resume', cause }: { verb?: ForNamed; cause?: unknown }): TrialgateError =>
  new TrialgateError('bad_input', `run ${runId} exists: choose another --run, or "npx trialgate ${verb} ${runId}"`, {
    cause,
  });
