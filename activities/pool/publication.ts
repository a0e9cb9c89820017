import { ApplicationFailure } from '@temporalio/common';
import { and, eq, inArray } from 'drizzle-orm';
import { policyVersions, publications, replicas } from '../../store/schema.ts';
import type { Database } from '../../store/database.ts';
import { readPoolState, replicasToRepair, type PoolState } from './check-pool.ts';
import type { Deps } from '../deps.ts';
import type { PublishInput, ReplicaReport } from '../../core/gpu-contract.ts';
import { weightVersionOf } from '../../core/weight-version.ts';
import { readRun } from '../run/read-run.ts';

/** An engine under load answers even a small request slowly; it is then not away. */
const TIMEOUT_MS = 30_000;

/** A publication to all replicas, or with `isMend` only to the lost ones while the others go on. */
type PublicationInput = { runId: string; version: number; isMend?: boolean };

/**
 * Takes the pool out of rotation, so that no call starts under a weight version that is about to change. `needed` is the number of replicas that
 * must confirm. A repair keeps what fewer replicas confirm, and is tried again for the rest.
 */
export const beginPublication =
  (deps: Deps) =>
  async (input: PublicationInput): Promise<PublishInput & { needed: number }> => {
    const { db } = deps;
    const pool = await readPoolState(deps, input.runId, TIMEOUT_MS);
    const toRepair = input.isMend ? replicasToRepair(pool) : null;
    const [target, base] = await Promise.all([
      readVersion(db, input.runId, input.version),
      readVersion(db, input.runId, 0),
    ]);
    const weightVersion = weightVersionOf(input.runId, input.version);
    const rows = await db
      .update(replicas)
      .set({ inRotation: false, weightVersion, updatedAt: new Date() })
      .where(
        and(
          eq(replicas.runId, input.runId),
          toRepair
            ? inArray(
                replicas.url,
                toRepair.map(({ url }) => url),
              )
            : undefined,
        ),
      )
      .returning({ url: replicas.url });
    if (pool.whole.length + pool.lost.length === 0) {
      throw ApplicationFailure.create({
        type: 'engine_unavailable',
        message: `run ${input.runId} owns no engine: start the gateway with --engine URL, or name engines in the run file, then resume`,
        nonRetryable: true,
      });
    }
    const parent = target.parentVersion === null ? null : await readVersion(db, input.runId, target.parentVersion);
    const urls = rows
      .map((row) => row.url)
      .filter((url) => toRepair || !isAway(pool, url))
      .toSorted();
    const { head_dtype } = await readRun(db, input.runId);
    const common = {
      weight_version: weightVersion,
      head_dtype,
      checkpoint: target.checkpoint,
      checkpoint_sha256: target.checkpointSha256,
      replicas: urls,
      canary: target.canary,
    };
    if (toRepair) {
      const needed = Math.max(0, pool.needed - pool.whole.length);
      return {
        ...common,
        needed,
        min_replicas: 0,
        canary_tolerance: base.canaryTolerance,
        checksum: await readChecksum(db, input),
        previous: null,
      };
    }
    return {
      ...common,
      needed: pool.needed,
      min_replicas: pool.needed,
      canary_tolerance: input.version === 0 ? null : base.canaryTolerance,
      // A run that goes on after its end may have pruned the version before.
      previous:
        parent?.prunedAt === null
          ? {
              weight_version: weightVersionOf(input.runId, parent.version),
              checkpoint: parent.checkpoint,
              checkpoint_sha256: parent.checkpointSha256,
              checksums: await readChecksums(db, input.runId, parent.version),
            }
          : null,
    };
  };

/** Writes what each replica confirmed and puts these replicas into rotation. Returns their number. */
export const endPublication =
  (deps: Deps) =>
  async (input: PublicationInput & { reports: ReplicaReport[] }): Promise<{ confirmed: number }> => {
    const { runId, version } = input;
    const weightVersion = weightVersionOf(runId, version);
    const confirmed = input.reports.flatMap(({ ok, url, weight_version: read, checksum, canary_difference }) =>
      ok && read === weightVersion && checksum !== null && canary_difference !== null
        ? [{ runId, version, replica: url, weightVersion, checksum, canaryDifference: canary_difference }]
        : [],
    );
    if (confirmed.length === 0) return { confirmed: 0 };
    await deps.db.transaction(async (tx) => {
      for (const row of confirmed) {
        const { checksum, canaryDifference } = row;
        await tx
          .insert(publications)
          .values(row)
          .onConflictDoUpdate({
            target: [publications.runId, publications.version, publications.replica],
            set: { checksum, canaryDifference, confirmedAt: new Date() },
          });
      }
      const urls = confirmed.map((row) => row.replica);
      await tx
        .update(replicas)
        .set({ inRotation: true, updatedAt: new Date() })
        .where(and(inArray(replicas.url, urls), eq(replicas.runId, runId), eq(replicas.weightVersion, weightVersion)));
      if (version === 0 && !input.isMend) {
        const canaryTolerance = Math.max(...confirmed.map((row) => row.canaryDifference));
        await tx
          .update(policyVersions)
          .set({ canaryTolerance })
          .where(and(eq(policyVersions.runId, runId), eq(policyVersions.version, 0)));
      }
    });
    return { confirmed: confirmed.length };
  };

/** Returns true for a replica that is away and that the run does not need: the others do not wait for it, and it gets the version when it is back. */
const isAway = ({ whole, lost, needed }: PoolState, url: string): boolean =>
  whole.length + lost.filter(({ answers }) => answers).length >= needed &&
  lost.some((row) => row.url === url && !row.answers);

/** Returns the checksum that any replica confirmed for the version. It is the same for all. */
async function readChecksum(db: Database, { runId, version }: PublicationInput): Promise<string | null> {
  return Object.values(await readChecksums(db, runId, version))[0] ?? null;
}

async function readVersion(db: Database, runId: string, version: number) {
  const [row] = await db
    .select()
    .from(policyVersions)
    .where(and(eq(policyVersions.runId, runId), eq(policyVersions.version, version)));
  if (!row) throw new Error(`run ${runId} has no policy version ${version}`);
  return row;
}

async function readChecksums(db: Database, runId: string, version: number): Promise<Record<string, string>> {
  const rows = await db
    .select()
    .from(publications)
    .where(and(eq(publications.runId, runId), eq(publications.version, version)));
  return Object.fromEntries(rows.map((row) => [row.replica, row.checksum]));
}
