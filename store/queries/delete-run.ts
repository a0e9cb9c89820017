import { eq, inArray } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { batches, calls, policyVersions, runs, trials } from '../schema.ts';

/** The files that only a deleted run used. */
export type RunFiles = { checkpoints: string[]; batches: string[] };

/** Deletes a run with its trials and their calls, in one transaction. Returns its files; undefined when there is no such run. */
export function deleteRun(db: Database, runId: string): Promise<RunFiles | undefined> {
  return db.transaction(async (tx) => {
    const [run] = await tx.select({ id: runs.id }).from(runs).where(eq(runs.id, runId)).for('update');
    if (!run) return undefined;
    const versions = await tx
      .select({ checkpoint: policyVersions.checkpoint })
      .from(policyVersions)
      .where(eq(policyVersions.runId, runId));
    const made = await tx.select({ path: batches.path }).from(batches).where(eq(batches.runId, runId));
    const ofRun = tx.select({ id: trials.id }).from(trials).where(eq(trials.runId, runId));
    await tx.delete(calls).where(inArray(calls.trialId, ofRun));
    await tx.delete(trials).where(eq(trials.runId, runId));
    await tx.delete(runs).where(eq(runs.id, runId));
    // A run that trains on a finished batch again has the same file.
    const shared = new Set((await tx.select({ path: batches.path }).from(batches)).map(({ path }) => path));
    return {
      checkpoints: versions.map(({ checkpoint }) => checkpoint),
      batches: made.map(({ path }) => path).filter((path) => !shared.has(path)),
    };
  });
}
