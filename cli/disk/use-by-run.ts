import { existsSync } from 'node:fs';
import { basename, join } from 'node:path';
import { asc } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { batches, policyVersions, runs } from '../../store/schema.ts';
import { diskUse, sizeOf } from './disk-use.ts';

export type RunUse = { run: string; status: string; checkpoints: number; bytes: number };

/** Returns what the checkpoints and batches of each run take on this machine, the most first. Files that two runs share count for both. */
export async function useByRun(db: Database, home: string): Promise<RunUse[]> {
  const all = await db.select({ run: runs.id, status: runs.status }).from(runs).orderBy(asc(runs.createdAt));
  const versions = await db
    .select({ runId: policyVersions.runId, checkpoint: policyVersions.checkpoint })
    .from(policyVersions);
  const made = await db.select({ runId: batches.runId, path: batches.path }).from(batches);
  const used = [];
  for (const { run, status } of all) {
    const own = <T extends { runId: string }>(rows: T[]): T[] => rows.filter(({ runId }) => runId === run);
    const checkpoints = own(versions)
      .map(({ checkpoint }) => join(home, 'checkpoints', basename(checkpoint)))
      .filter((path) => existsSync(path));
    const files = own(made).map(({ path }) => join(home, 'batches', basename(path)));
    const bytes = await diskUse([...new Set([...checkpoints, ...files.filter((path) => existsSync(path))])]);
    used.push({ run, status, checkpoints: checkpoints.length, bytes });
  }
  return used.toSorted((a, b) => b.bytes - a.bytes);
}

/** Says what runs keep, and how to remove it: what a run may still need is no garbage. */
export function keptByRuns(used: readonly RunUse[]): string {
  const kept = used.filter(({ bytes }) => bytes > 0);
  if (kept.length === 0) return 'no run has checkpoints here';
  const sum = sizeOf(kept.reduce((total, { bytes }) => total + bytes, 0));
  const runsUse = kept.length === 1 ? '1 run uses' : `${kept.length} runs use`;
  return `${runsUse} ${sum} for checkpoints and batches: \`npx trialgate rm RUN\` deletes a run that has ended, with these`;
}
