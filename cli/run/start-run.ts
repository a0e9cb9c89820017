import { WorkflowExecutionAlreadyStartedError, WorkflowIdReusePolicy } from '@temporalio/common';
import type { Client, WorkflowHandle } from '@temporalio/client';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { RunProgress } from '../../workflows/run-execution.ts';
import type { trainRun } from '../../workflows/train-run.ts';
import { TASK_QUEUE } from '../../core/task-queues.ts';

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
    const advice = progress ? 'it is running already' : `choose another --run, or "trialgate resume ${runId}"`;
    throw new TrialgateError('bad_input', `run ${runId} exists: ${advice}`, { cause: error });
  }
}
