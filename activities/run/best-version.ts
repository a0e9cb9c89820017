import { and, eq, inArray } from 'drizzle-orm';
import { rankVersions } from '../../store/queries/rank-versions.ts';
import type { Executor } from '../../store/queries/transaction.ts';
import { policyVersions } from '../../store/schema.ts';
import { hasCheckpoint } from './link-checkpoint.ts';

/** Returns the best version of a run whose checkpoint is there; null when there is none. A better one may have been removed by an earlier step. */
export async function bestVersion(
  db: Executor,
  runId: string,
  weights: Record<string, number>,
): Promise<{ version: number; checkpoint: string } | null> {
  const versions = await rankVersions(db, runId, weights);
  const rows = await db
    .select({ version: policyVersions.version, checkpoint: policyVersions.checkpoint })
    .from(policyVersions)
    .where(and(eq(policyVersions.runId, runId), inArray(policyVersions.version, versions)));
  for (const version of versions) {
    const row = rows.find((each) => each.version === version);
    if (row && (await hasCheckpoint(row.checkpoint))) return row;
  }
  return null;
}
