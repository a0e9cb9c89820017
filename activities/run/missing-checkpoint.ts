import { and, eq } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import type { Executor } from '../../store/queries/transaction.ts';
import { policyVersions } from '../../store/schema.ts';

type Version = Pick<typeof policyVersions.$inferSelect, 'runId' | 'version' | 'prunedAt'>;

/** Returns the reason why the checkpoint of a recorded version is not there, as a part of a sentence. */
export function missingCheckpoint({ runId, version, prunedAt }: Version): string {
  const what = `the checkpoint of policy version ${version} of run ${runId} was`;
  return prunedAt === null
    ? `${what} removed (\`keep_checkpoints\`)`
    : `${what} pruned when the run completed: its run file keeps only the best, the last and those of \`keep_interval\` (\`keep_checkpoints_at_end: all\` keeps all)`;
}

/**
 * Refuses an iteration that would begin from a pruned version: a completed run can redo its last iteration only if it kept the version that the iteration began from.
 * @throws TrialgateError `bad_input`
 */
export async function requireNotPruned(db: Executor, runId: string, version: number): Promise<void> {
  const [row] = await db
    .select()
    .from(policyVersions)
    .where(and(eq(policyVersions.runId, runId), eq(policyVersions.version, version)));
  if (row && row.prunedAt !== null)
    throw new TrialgateError(
      'bad_input',
      `the iteration cannot run again: ${missingCheckpoint(row)}. "npx trialgate fork ${runId}@VERSION" goes on from a version that has its trainer's state, such as the last`,
    );
}
