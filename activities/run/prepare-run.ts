import { eq } from 'drizzle-orm';
import { requireRunId } from '../../core/ids.ts';
import { runs } from '../../store/schema.ts';
import { checkRun } from './check-run.ts';
import type { Deps } from '../deps.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import type { InstallOptions } from '../environments/run-installer.ts';
import { checkRows, missingSources, storeRows } from '../tasks/store-rows.ts';
import { nonRetryable } from '../temporal/non-retryable.ts';
import { resolvePaths } from './resolve-paths.ts';
import { runPosition } from './run-position.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';

export type RunPosition = {
  config: RunConfig;
  /** The next iteration, and the policy version that it samples from. */
  iteration: number;
  policyVersion: number;
};

/** Validates the run file, checks what it names, and opens the run or finds it. Returns where the run goes on. */
export const prepareRun =
  (deps: Deps) =>
  async (
    input: { runId: string; runFile: unknown },
    signal: AbortSignal = new AbortController().signal,
  ): Promise<RunPosition> => {
    const [known] = await deps.db.select({ config: runs.config }).from(runs).where(eq(runs.id, input.runId));
    // The stored settings have the changes that a person made since the run began.
    const config = await checked(
      { runId: input.runId, runFile: known?.config ?? input.runFile },
      { home: deps.home, signal },
      known === undefined,
    );
    // A download may take longer than a transaction may, so it comes first.
    await nonRetryable(async () => checkRows(config, deps.home, await missingSources(deps.db, input.runId, config)));
    await nonRetryable(() =>
      deps.db.transaction(async (tx) => {
        await tx.insert(runs).values({ id: input.runId, config }).onConflictDoNothing();
        await storeRows(tx, input.runId, config, deps.home);
      }),
    );
    await deps.db.update(runs).set({ status: 'running', reason: null, endedAt: null }).where(eq(runs.id, input.runId));
    return { config, ...(await runPosition(deps.db, input.runId)) };
  };

/** Checks a run file. Only a person can repair it, so the workflow fails at once with the reason. */
const checked = (
  { runId, runFile }: { runId: string; runFile: unknown },
  options: InstallOptions,
  isNew: boolean,
): Promise<RunConfig> =>
  nonRetryable(async () => {
    requireRunId(runId);
    const config = resolvePaths(parseRunConfig(runFile));
    await checkRun(config, options, { isNew });
    return config;
  });
