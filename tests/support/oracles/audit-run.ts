import { and, asc, eq, isNotNull, isNull, notInArray, sql } from 'drizzle-orm';
import { readRun } from '../../../activities/run/read-run.ts';
import { weightVersionOf } from '../../../core/weight-version.ts';
import { readWeightVersion } from '../../../activities/pool/read-weight-version.ts';
import type { Database } from '../../../store/database.ts';
import {
  attempts,
  calls,
  groups,
  iterations,
  policyVersions,
  publications,
  replicas,
  trials,
} from '../../../store/schema.ts';

/**
 * Checks in the store what must hold for a run that ended, whatever was killed meanwhile (invariants 1, 5, 7 and 11). Returns the faults.
 * `restarted`: engines may have restarted since the last publication and then report `default`. `stragglers`: the run's end may have cut
 * stragglers, whose attempts have then ended.
 */
export async function auditRun(
  db: Database,
  runId: string,
  expectedIterations: number,
  { restarted = false, stragglers = false } = {},
): Promise<string[]> {
  const faults: string[] = [];
  const check = (holds: boolean, fault: string) => void (holds || faults.push(fault));

  const done = await db
    .select()
    .from(iterations)
    .where(and(eq(iterations.runId, runId), eq(iterations.status, 'done')))
    .orderBy(asc(iterations.iteration));
  check(
    String(done.map((row) => row.iteration)) === String([...Array(expectedIterations).keys()]),
    `iterations done: ${done.map((row) => row.iteration)}`,
  );

  const versions = await db
    .select()
    .from(policyVersions)
    .where(eq(policyVersions.runId, runId))
    .orderBy(asc(policyVersions.version));
  check(versions.length === expectedIterations + 1, `${versions.length} versions for ${expectedIterations} iterations`);
  check(new Set(versions.map((row) => row.stepKey)).size === versions.length, 'a train step was applied twice');
  for (const row of done) {
    const made = versions.find((each) => each.version === row.trainedVersion);
    check(
      made?.parentVersion === row.policyVersion,
      `version ${row.trainedVersion} does not descend from ${row.policyVersion}`,
    );
  }

  const finishedTwice = await db
    .select({ trial: attempts.trialId })
    .from(attempts)
    .innerJoin(trials, eq(trials.id, attempts.trialId))
    .where(
      and(
        eq(trials.runId, runId),
        isNotNull(attempts.outcome),
        notInArray(attempts.outcome, ['infra_error', 'cancelled']),
      ),
    )
    .groupBy(attempts.trialId)
    .having(sql`count(*) > 1`);
  check(finishedTwice.length === 0, `finished trials that were run again: ${finishedTwice.map((row) => row.trial)}`);

  // A call and its attempt's end are committed under the same lock, so a call that ended after its attempt must not be recorded.
  const late = await db
    .select({ id: calls.id })
    .from(calls)
    .innerJoin(attempts, and(eq(attempts.trialId, calls.trialId), eq(attempts.attempt, calls.attempt)))
    .innerJoin(trials, eq(trials.id, calls.trialId))
    .where(and(eq(trials.runId, runId), eq(calls.status, 'completed'), sql`${calls.endedAt} > ${attempts.endedAt}`));
  check(late.length === 0, `${late.length} calls were recorded after their attempt had ended`);

  // On-policy, all calls of a group have the version that it was planned with. With staleness, later calls may have newer versions.
  const { max_staleness: staleness } = await readRun(db, runId);
  const isForeign =
    staleness === 0
      ? sql`${calls.policyVersion} is distinct from ${groups.policyVersion}`
      : sql`coalesce(${calls.policyVersion}, -1) < ${groups.policyVersion}`;
  const foreign = await db
    .select({ id: calls.id, weightVersion: calls.weightVersion, expected: groups.policyVersion })
    .from(calls)
    .innerJoin(trials, eq(trials.id, calls.trialId))
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(and(eq(trials.runId, runId), eq(calls.status, 'completed'), isForeign));
  check(
    foreign.length === 0,
    `calls under a weight version that the pool did not have: ${JSON.stringify(foreign.slice(0, 3))}`,
  );

  const unfinished = await db
    .select({ id: trials.id })
    .from(trials)
    .innerJoin(attempts, and(eq(attempts.trialId, trials.id), eq(attempts.attempt, trials.attempt)))
    .where(and(eq(trials.runId, runId), isNull(trials.outcome), stragglers ? isNull(attempts.endedAt) : undefined));
  check(unfinished.length === 0, `trials without an outcome: ${unfinished.map((row) => row.id)}`);

  const newest = versions.at(-1)?.version ?? 0;
  const pool = await db.select().from(replicas);
  for (const { url } of pool) {
    const expected = weightVersionOf(runId, newest);
    const weightVersion = await readWeightVersion(url, { gatewayUrls: [], secret: '' }, { expected });
    check(
      weightVersion === expected || (restarted && weightVersion === 'default'),
      `replica ${url} says ${weightVersion}, not ${expected}`,
    );
    const [read] = await db
      .select()
      .from(publications)
      .where(and(eq(publications.runId, runId), eq(publications.version, newest), eq(publications.replica, url)));
    check(read !== undefined, `replica ${url} never confirmed version ${newest}`);
  }
  check(pool.length > 0, 'no replica is registered');
  return faults;
}
