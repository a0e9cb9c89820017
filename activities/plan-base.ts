import type { Deps } from './deps.ts';
import type { LoadBaseInput } from './gpu-contract.ts';
import { readRun } from './read-run.ts';

/** What the trainer needs to make policy version 0. */
export const planBase = (deps: Deps) => async (input: { runId: string }): Promise<LoadBaseInput> => {
  const { model } = await readRun(deps.db, input.runId);
  return { run_id: input.runId, model, home: deps.home };
};
