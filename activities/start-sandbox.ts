import { ApplicationFailure } from '@temporalio/common';
import { TrialgateError } from '../store/errors.ts';
import type { Deps } from './deps.ts';
import { loadTask } from './tasks/load-task.ts';
import { whileHeartbeating } from './while-heartbeating.ts';

/** Makes the attempt's sandbox on this host, as soon as there is room, and returns the task queue of its host. */
export const startSandbox =
  (deps: Deps) =>
  async (input: { trialId: string; attempt: number; task: string }): Promise<{ host: string }> =>
    whileHeartbeating(async (signal) => {
      try {
        await deps.sandboxes.open(input, await loadTask(input.task), signal);
        return { host: deps.hostQueue };
      } catch (error) {
        if (!(error instanceof TrialgateError)) throw error;
        throw ApplicationFailure.create({ type: error.code, message: error.message, nonRetryable: true });
      }
    });
