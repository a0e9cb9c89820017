import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { and, eq, inArray } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import type { Transaction } from '../../store/queries/transaction.ts';
import { policyVersions, runs } from '../../store/schema.ts';
import { bestVersion } from './best-version.ts';
import { hasCheckpoint, MANIFEST, replayedFrom } from './link-checkpoint.ts';
import { readRun } from './read-run.ts';
import { runPosition } from './run-position.ts';

/**
 * Removes the checkpoints of a completed run except those of its best and its last version (`keep_checkpoints_at_end`) and of every
 * version that `keep_interval` divides. The versions are marked first, so that a repetition removes the same files. Files that cannot be
 * removed are left to `gc`.
 */
export async function pruneCheckpoints(db: Database, runId: string): Promise<void> {
  const folders = await db.transaction((tx) => markPruned(tx, runId));
  await Promise.all(
    folders.map((folder) =>
      removeCheckpoint(folder).catch((error: unknown) =>
        console.error(`the checkpoint ${folder} cannot be removed: ${String(error)}`),
      ),
    ),
  );
}

/** Returns the folders of all versions that are pruned, also by an earlier try. */
async function markPruned(tx: Transaction, runId: string): Promise<string[]> {
  const [run] = await tx.select({ status: runs.status }).from(runs).where(eq(runs.id, runId)).for('update');
  // A person may have resumed the run since this try began.
  if (run?.status !== 'completed') return [];
  const { keep_checkpoints_at_end: keep, keep_interval: interval, reward_weights: weights } = await readRun(tx, runId);
  if (keep === 'all') return [];
  const versions = await tx.select().from(policyVersions).where(eq(policyVersions.runId, runId));
  // Version 0 has only links: to the model, or to the checkpoint that it was forked from.
  const best = await bestVersion(tx, runId, weights);
  const kept = new Set([0, (await runPosition(tx, runId)).policyVersion, ...(best ? [best.version] : [])]);
  // Two takes with equal batches made the same checkpoint.
  const staying = versions
    .filter(({ version }) => kept.has(version) || (interval !== null && version % interval === 0))
    .map(({ checkpoint }) => checkpoint);
  // A fork of a version that stays begins with its trainer's state, which may be computed from the checkpoints before.
  const needed = new Set([...staying, ...(await Promise.all(staying.map(replayedFrom))).flat()]);
  const others = versions.filter(({ checkpoint }) => !needed.has(checkpoint));
  // A step has already removed some (`keep_checkpoints`).
  const there = await Promise.all(
    others.map(async (row) => (row.prunedAt === null && (await hasCheckpoint(row.checkpoint)) ? [row.version] : [])),
  );
  const marked = new Set(there.flat());
  if (marked.size > 0)
    await tx
      .update(policyVersions)
      .set({ prunedAt: new Date() })
      .where(and(eq(policyVersions.runId, runId), inArray(policyVersions.version, [...marked])));
  return others
    .filter(({ version, prunedAt }) => prunedAt !== null || marked.has(version))
    .map(({ checkpoint }) => checkpoint);
}

async function removeCheckpoint(folder: string): Promise<void> {
  // Without a manifest it is no checkpoint any more. Whoever copies or links it now sees that.
  await rm(join(folder, MANIFEST), { force: true });
  await rm(folder, { recursive: true, force: true });
}
