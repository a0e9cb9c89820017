import { ApplicationFailure } from '@temporalio/common';
import { TrialgateError } from '../../core/errors.ts';

/** Runs `work` and turns its TrialgateError into a failure that is not retried, with the same code and message. */
export async function nonRetryable<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof TrialgateError)) throw error;
    throw ApplicationFailure.create({ type: error.code, message: error.message, nonRetryable: true });
  }
}
