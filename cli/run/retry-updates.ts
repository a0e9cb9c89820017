import { isGrpcServiceError, ServiceError, type WorkflowClientInterceptor } from '@temporalio/client';
import { setTimeout as sleep } from 'node:timers/promises';

const FAILED_PRECONDITION = 9;
const [TRIES, PAUSE_MS] = [20, 500];

/**
 * Sends an update again when Temporal's server dropped it because the workflow task that carried it failed. The workflow has not
 * accepted the update then; if it has after all, the server recognizes the update by its id.
 */
export const retryDroppedUpdates: WorkflowClientInterceptor = {
  async startUpdate(input, next) {
    const options = { ...input.options, updateId: input.options.updateId ?? crypto.randomUUID() };
    for (let tries = 1; ; tries++) {
      try {
        return await next({ ...input, options });
      } catch (error) {
        if (tries === TRIES || !isDropped(error)) throw error;
        await sleep(PAUSE_MS);
      }
    }
  },
};

const isDropped = (error: unknown): boolean =>
  error instanceof ServiceError &&
  isGrpcServiceError(error.cause) &&
  error.cause.code === FAILED_PRECONDITION &&
  error.cause.details.includes('unexpected workflow task failure');
