import { WorkflowFailedError, type Client } from '@temporalio/client';
import { ApplicationFailure, WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EvaluationRequest } from '../../activities/evaluation/plan-evaluation-on-demand.ts';
import { readRun } from '../../activities/run/read-run.ts';
import { TrialgateError } from '../../core/errors.ts';
import { isEvaluatedAsServed } from '../../core/run-config/run-config.ts';
import { innermost } from '../../workflows/describe.ts';
import type { evaluateRun, EvaluationDone } from '../../workflows/evaluate-run.ts';
import { progressLine } from '../progress.ts';
import { TASK_QUEUE } from '../../core/task-queues.ts';
import { NO_RELAY, requireSameModel } from './check-engines.ts';
import type { DeploymentClients } from './connect.ts';
import { readProgress } from './run-progress.ts';

/**
 * Starts an evaluation. A run has at most one under way.
 * @param relay the way to engines behind relay workers
 * @throws TrialgateError `bad_input` when an engine has another model than the run; then nothing was started
 */
export async function startEvaluation(
  { client, db }: DeploymentClients,
  request: EvaluationRequest,
  relay = NO_RELAY,
): Promise<void> {
  const config = await readRun(db, request.runId);
  if (!isEvaluatedAsServed(config)) await requireSameModel(db, config, relay);
  try {
    await client.workflow.start<typeof evaluateRun>('evaluateRun', {
      workflowId: `${request.runId}/evaluate`,
      taskQueue: TASK_QUEUE,
      args: [request],
      staticSummary: `held-out tasks of ${request.runId}${request.version === undefined ? '' : `, policy ${request.version}`}`,
    });
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    throw new TrialgateError(
      'bad_input',
      `run ${request.runId} is being evaluated already: wait for that, or cancel ${request.runId}/evaluate`,
      { cause: error },
    );
  }
}

/** Shows an evaluation until it ends and returns its result. Ctrl-C ends only the watching. */
export async function watchEvaluation(
  { client, db }: DeploymentClients,
  runId: string,
  signal: AbortSignal,
): Promise<EvaluationDone> {
  const line = progressLine();
  const ended = resultOf(client, runId);
  try {
    for (;;) {
      const done = await Promise.race([ended, sleep(1000, null, { signal })]);
      if (done) return done;
      const progress = await readProgress(db, runId).catch(() => null);
      if (progress)
        line.show(
          `${runId}: ${progress.title}: ${progress.reason ?? progress.trials}`,
          `${runId}: ${progress.reason ?? progress.title}`,
        );
    }
  } catch (error) {
    if (signal.aborted) console.error(`the evaluation goes on; "npx trialgate show ${runId}" shows its result`);
    throw error;
  } finally {
    ended.catch(() => {});
    line.end();
  }
}

async function resultOf(client: Client, runId: string): Promise<EvaluationDone> {
  try {
    return await client.workflow.getHandle<typeof evaluateRun>(`${runId}/evaluate`).result();
  } catch (error) {
    const deepest = innermost(error);
    if (!(error instanceof WorkflowFailedError) || !(deepest instanceof ApplicationFailure)) throw deepest;
    throw new TrialgateError(deepest.type === 'bad_input' ? 'bad_input' : 'engine_unavailable', deepest.message, {
      cause: error,
    });
  }
}
