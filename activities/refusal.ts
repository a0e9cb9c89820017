import { ApplicationFailure } from '@temporalio/common';
import { TrialgateError } from '../store/errors.ts';

/** Runs `work`; what it refuses is not tried again, and keeps its code and its sentence. */
export async function refusing<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof TrialgateError)) throw error;
    throw ApplicationFailure.create({ type: error.code, message: error.message, nonRetryable: true });
  }
}
