import { sql } from 'drizzle-orm';
import type { Executor } from '../../store/queries/transaction.ts';
import { policyVersions } from '../../store/schema.ts';

/** Returns the ancestors of `version` up to `limit` versions back, each with its distance (1 is the parent). A version that is missing is too old or is no ancestor. */
export async function readLineage(
  db: Executor,
  input: { runId: string; version: number; limit: number },
): Promise<Map<number, number>> {
  const { runId, version, limit } = input;
  const { rows } = await db.execute<{ version: number; distance: number }>(sql`
    with recursive lineage (version, parent, distance) as (
      select version, parent_version, 0 from ${policyVersions} where run_id = ${runId} and version = ${version}
      union all
      select v.version, v.parent_version, l.distance + 1 from ${policyVersions} as v join lineage l on v.run_id = ${runId} and v.version = l.parent where l.distance < ${limit}
    ) select version, distance from lineage`);
  return new Map([[version, 0], ...rows.map((row): [number, number] => [row.version, row.distance])]);
}
