import { eq } from 'drizzle-orm';
import type { Executor } from '../../store/queries/transaction.ts';
import { runs } from '../../store/schema.ts';
import { unknownRun } from './unknown-run.ts';
import { runConfig, type RunConfig } from '../../core/run-config/run-config.ts';

/** Returns the settings of a run with all defaults filled in. */
export async function readRun(db: Executor, runId: string): Promise<RunConfig> {
  const [run] = await db.select({ config: runs.config }).from(runs).where(eq(runs.id, runId));
  if (!run) throw await unknownRun(db, runId);
  return runConfig.parse(run.config);
}
