import { ApplicationFailure } from '@temporalio/common';
import { and, eq, inArray, ne, not, notInArray } from 'drizzle-orm';
import { isDraining } from '../../store/queries/is-draining.ts';
import { policyVersions, publications, replicas } from '../../store/schema.ts';
import type { Database } from '../../store/database.ts';
import { readPoolState, replicasToRepair, type PoolState } from './check-pool.ts';
import type { Deps } from '../deps.ts';
import type { PublishInput, ReplicaReport } from '../../core/gpu-contract.ts';
import { weightVersionOf } from '../../core/weight-version.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { readRun } from '../run/read-run.ts';

/** An engine under load answers even a small request slowly; it is then not away. */
const TIMEOUT_MS = 30_000;

/** A publication to all replicas, or with `isMend` only to the lost ones while the others go on. */
type PublicationInput = { runId: string; version: number; isMend?: boolean };

/**
 * Takes the pool out of rotation, so that no call starts under a weight version that is about to change. Replicas that serve a LoRA adapter go on
 * with it, because the next one is loaded beside it. `needed` is the number of replicas that must confirm. A repair keeps what fewer replicas
 * confirm, and is tried again for the rest.
 */
export const beginPublication =
  (deps: Deps) =>
  async (input: PublicationInput): Promise<PublishInput & { needed: number }> => {
    const { db } = deps;
    const [pool, run] = await Promise.all([readPoolState(deps, input.runId, TIMEOUT_MS), readRun(db, input.runId)]);
    const toRepair = input.isMend ? replicasToRepair(pool) : null;
    const [target, base] = await Promise.all([
      readVersion(db, input.runId, input.version),
      readVersion(db, input.runId, 0),
    ]);
    const weightVersion = weightVersionOf(input.runId, input.version);
    const serving = run.lora_rank > 0 && !toRepair ? pool.whole.map(({ url }) => url) : [];
    const taken = await db
      .update(replicas)
      .set({ inRotation: false, weightVersion, updatedAt: new Date() })
      .where(
        and(
          eq(replicas.runId, input.runId),
          not(isDraining),
          toRepair
            ? inArray(
                replicas.url,
                toRepair.map(({ url }) => url),
              )
            : notInArray(replicas.url, serving),
        ),
      )
      .returning({ url: replicas.url });
    if (pool.whole.length + pool.lost.length === 0) throw await noEngine(db, input);
    const parent = target.parentVersion === null ? null : await readVersion(db, input.runId, target.parentVersion);
    const urls = [...taken.map((row) => row.url), ...serving]
      .filter((url) => toRepair || !isAway(pool, url))
      .toSorted();
    const common = {
      weight_version: weightVersion,
      head_dtype: run.head_dtype,
      weight_broadcast: run.weight_broadcast,
      keep: adaptersInUse(run, input, target.parentVersion),
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

/**
 * Returns the names of the adapters that stay loaded beside the new one: those that the calls of trials may have which are still young enough,
 * and the one to go back to.
 */
function adaptersInUse(
  { lora_rank, max_staleness }: Pick<RunConfig, 'lora_rank' | 'max_staleness'>,
  { runId, version }: PublicationInput,
  parent: number | null,
): string[] {
  if (lora_rank === 0) return [];
  const young = Array.from({ length: max_staleness }, (_, i) => version - 1 - i).filter((each) => each >= 0);
  return [...new Set([...young, ...(parent === null ? [] : [parent])])].map((each) => weightVersionOf(runId, each));
}

/** For a while all engines of a run may drain, or be away until others replace them. Then the activity is tried again until one serves. */
async function noEngine(db: Database, { runId, isMend }: PublicationInput): Promise<ApplicationFailure> {
  const owned = await db.select({ url: replicas.url }).from(replicas).where(eq(replicas.runId, runId));
  const message =
    owned.length > 0
      ? `all engines of run ${runId} drain or have left (\`npx trialgate engine list\`): join one, or wait for one that serves again`
      : `run ${runId} owns no engine: start the gateway with --engine URL, or name engines in the run file, then resume`;
  return ApplicationFailure.create({
    type: 'engine_unavailable',
    message,
    nonRetryable: owned.length === 0 || isMend === true,
  });
}

/**
 * Writes what each replica confirmed and puts these replicas into rotation. Returns their number. A replica that went on with an older adapter
 * and did not confirm leaves the rotation.
 */
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
    const { lora_rank } = await readRun(deps.db, runId);
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
        .set({ inRotation: true, weightVersion, updatedAt: new Date() })
        .where(
          and(
            inArray(replicas.url, urls),
            eq(replicas.runId, runId),
            lora_rank > 0 ? undefined : eq(replicas.weightVersion, weightVersion),
          ),
        );
      if (lora_rank > 0 && !input.isMend)
        await tx
          .update(replicas)
          .set({ inRotation: false, weightVersion, updatedAt: new Date() })
          .where(and(eq(replicas.runId, runId), ne(replicas.weightVersion, weightVersion), not(isDraining)));
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
