import { WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError, type Client } from '@temporalio/client';
import { ApplicationFailure, WorkflowNotFoundError } from '@temporalio/common';
import { TrialgateError } from '../../core/errors.ts';
import { innermost } from '../../workflows/describe.ts';
import { RUN_ENDING } from '../../workflows/messages.ts';

const ANSWER_MS = 60_000;

/**
 * Sends an update to a run that is under way and returns the run's answer.
 * @throws TrialgateError `bad_input` with the run's own sentence when it refuses; the run goes on
 */
export async function updateRun(client: Client, runId: string, update: string, argument: object = {}): Promise<string> {
  try {
    return await client.withDeadline(Date.now() + ANSWER_MS, () =>
      client.workflow.getHandle(runId).executeUpdate<string, [object]>(update, { args: [argument] }),
    );
  } catch (error) {
    throw explain(error, runId);
  }
}

function explain(error: unknown, runId: string): unknown {
  if (error instanceof WorkflowNotFoundError) {
    const message = `run ${runId} is not under way: "npx trialgate show ${runId}" shows its state, and "npx trialgate resume ${runId}" continues it unless it has completed`;
    return new TrialgateError('not_found', message, { cause: error });
  }
  if (error instanceof WorkflowUpdateRPCTimeoutOrCancelledError) {
    const message = `run ${runId} did not answer within ${ANSWER_MS / 1000} s: does its workflow worker run? ("npx trialgate status")`;
    return new TrialgateError('missing_prerequisite', message, { cause: error });
  }
  if (!(error instanceof WorkflowUpdateFailedError)) return error;
  const deepest = innermost(error);
  if (deepest instanceof ApplicationFailure && deepest.type === RUN_ENDING)
    return new TrialgateError('not_found', deepest.message, { cause: error });
  return deepest instanceof ApplicationFailure
    ? new TrialgateError('bad_input', deepest.message, { cause: error })
    : deepest;
}
