import { eq, inArray } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { batches, calls, policyVersions, runs, trials } from '../schema.ts';

/** The files that only a deleted run used. */
export type RunFiles = { checkpoints: string[]; batches: string[] };

/** The trials of one statement, whose calls may have many megabytes. */
const BATCH = 200;

/**
 * Deletes a run with its trials and their calls. The trials go first, some at a time, because a statement has little time; when this is
 * interrupted, the next try goes on. Returns the run's files; undefined when there is no such run.
 */
export async function deleteRun(db: Database, runId: string): Promise<RunFiles | undefined> {
  const [known] = await db.select({ id: runs.id }).from(runs).where(eq(runs.id, runId));
  if (!known) return undefined;
  while ((await deleteSomeTrials(db, runId)) > 0);
  return db.transaction(async (tx) => {
    const [run] = await tx.select({ id: runs.id }).from(runs).where(eq(runs.id, runId)).for('update');
    if (!run) return undefined;
    const versions = await tx
      .select({ checkpoint: policyVersions.checkpoint })
      .from(policyVersions)
      .where(eq(policyVersions.runId, runId));
    const made = await tx.select({ path: batches.path }).from(batches).where(eq(batches.runId, runId));
    await tx.delete(runs).where(eq(runs.id, runId));
    // A run that trains on a finished batch again has the same file.
    const shared = new Set((await tx.select({ path: batches.path }).from(batches)).map(({ path }) => path));
    return {
      checkpoints: versions.map(({ checkpoint }) => checkpoint),
      batches: made.map(({ path }) => path).filter((path) => !shared.has(path)),
    };
  });
}

async function deleteSomeTrials(db: Database, runId: string): Promise<number> {
  const some = await db.select({ id: trials.id }).from(trials).where(eq(trials.runId, runId)).limit(BATCH);
  const ids = some.map(({ id }) => id);
  if (ids.length === 0) return 0;
  await db.transaction(async (tx) => {
    await tx.delete(calls).where(inArray(calls.trialId, ids));
    await tx.delete(trials).where(inArray(trials.id, ids));
  });
  return ids.length;
}
