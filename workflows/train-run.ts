import { continueAsNew } from '@temporalio/workflow';
import type { RunStatusReport } from './messages.ts';
import { RunExecution, type RunProgress } from './run-execution.ts';

/**
 * A training run. Each execution is one iteration and continues as new, so that histories stay small and `temporal workflow reset --type
 * LastContinuedAsNew` redoes an iteration. The workflow's id is the run's. Its groups may outlive an execution, and with `max_staleness`
 * an iteration.
 */
export async function trainRun(runFile: unknown, progress: RunProgress = {}): Promise<RunStatusReport> {
  const run = new RunExecution(runFile, progress);
  try {
    await run.prepare();
    await run.openTake();
    await run.takeEngines();
    await run.evaluateBaseModel();
    if (!run.hasIteration()) return await run.finish();
    await run.trainOneIteration();
    if (run.isOver()) return await run.finish();
    return await continueAsNew<typeof trainRun>(...run.nextExecution());
  } catch (error) {
    await run.endBy(error);
    throw error;
  }
}
