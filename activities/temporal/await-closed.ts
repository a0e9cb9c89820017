import { Context } from '@temporalio/activity';
import { ApplicationFailure, WorkflowNotFoundError } from '@temporalio/common';
import { isGrpcCancelledError, isGrpcDeadlineError, WorkflowFailedError, type Client } from '@temporalio/client';

/** Less than the activity's timeout: each try ends by itself, and Temporal's retry polls again without an event in the caller's history. */
const TRY_MS = 50_000;

/** Waits until the newest workflow with this id has closed, however it ends; returns at once when there is none. */
export const awaitClosed =
  (deps: { temporal: Client }) =>
  async ({ workflowId }: { workflowId: string }): Promise<void> => {
    const { temporal } = deps;
    const handle = temporal.workflow.getHandle(workflowId, undefined, { followRuns: false });
    try {
      await temporal.withAbortSignal(Context.current().cancellationSignal, () =>
        temporal.withDeadline(Date.now() + TRY_MS, () => handle.result()),
      );
    } catch (error) {
      if (error instanceof WorkflowFailedError || error instanceof WorkflowNotFoundError) return;
      const isOpen = isGrpcDeadlineError(error) || isGrpcCancelledError(error);
      throw isOpen ? ApplicationFailure.retryable(`${workflowId} is still open`, 'still_open') : error;
    }
  };
