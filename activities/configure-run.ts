import { ApplicationFailure } from '@temporalio/common';
import { eq } from 'drizzle-orm';
import { TrialgateError } from '../store/errors.ts';
import { runs } from '../store/schema.ts';
import type { Deps } from './deps.ts';
import { parseRunConfig } from './parse-run-config.ts';
import { readRun } from './read-run.ts';
import type { RunConfig } from './run-config.ts';

/** Placeholder until the branch `operate` brings it. */
export const configureRun = (deps: Deps) => async (input: { runId: string; changes: Record<string, unknown> }): Promise<RunConfig> => {
  try {
    const config = parseRunConfig({ ...(await readRun(deps.db, input.runId)), ...input.changes });
    await deps.db.update(runs).set({ config }).where(eq(runs.id, input.runId));
    return config;
  } catch (error) {
    if (!(error instanceof TrialgateError)) throw error;
    throw ApplicationFailure.create({ type: error.code, message: error.message, nonRetryable: true });
  }
};
