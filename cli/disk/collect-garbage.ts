import { readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { Database } from '../../store/database.ts';
import { isNull } from 'drizzle-orm';
import { replayedFrom } from '../../activities/run/link-checkpoint.ts';
import { batches, policyVersions } from '../../store/schema.ts';
import { diskUse } from './disk-use.ts';

/** A file or folder of a deployment that no run needs any more. */
export type Garbage = {
  path: string;
  bytes: number;
  why: string;
  /** The time of its last change or use. */ at: number;
};

const DAY_MS = 24 * 3600_000;
/** Something that is being made is not in the database yet. */
const FRESH_MS = DAY_MS;
/** Packages, repositories, files of images and datasets are fetched again when they are needed. No trial that uses them runs for so long (`LONGEST_SECONDS`). */
const UNUSED_MS = 30 * DAY_MS;

/** Finds what `gc` removes. The whole folder must be on this machine. */
export async function findGarbage(db: Database, home: string, now = Date.now()): Promise<Garbage[]> {
  const versions = await db
    .select({ checkpoint: policyVersions.checkpoint })
    .from(policyVersions)
    .where(isNull(policyVersions.prunedAt));
  const made = await db.select({ path: batches.path }).from(batches);
  const named = versions.map(({ checkpoint }) => basename(checkpoint));
  // No row names the checkpoints from which a fork computes the trainer's state of its version 0.
  const needed = await Promise.all(named.map((name) => replayedFrom(join(home, 'checkpoints', name))));
  const checkpoints = new Set([...named, ...needed.flat().map((folder) => basename(folder))]);
  const files = new Set(made.map(({ path }) => basename(path)));
  const found = await Promise.all([
    entries(
      join(home, 'checkpoints'),
      'a checkpoint that no run keeps',
      (name, age) => !checkpoints.has(name) && age > FRESH_MS,
    ),
    entries(join(home, 'batches'), 'a batch of no run', (name, age) => !files.has(name) && age > FRESH_MS),
    entries(join(home, 'environments'), 'packages that nothing used for 30 days', (_, age) => age > UNUSED_MS),
    entries(join(home, 'repositories'), 'a repository that nothing used for 30 days', (_, age) => age > UNUSED_MS),
    entries(join(home, 'images'), 'files of an image that nothing used for 30 days', (_, age) => age > UNUSED_MS),
    entries(join(home, 'cache/datasets'), 'a dataset, downloaded more than 30 days ago', (_, age) => age > UNUSED_MS),
  ]);
  return Promise.all(found.flat().map(async (each) => ({ ...each, bytes: await diskUse(each.path) })));

  async function entries(folder: string, why: string, isGarbage: (name: string, age: number) => boolean) {
    const names = await readdir(folder).catch(() => []);
    const aged = await Promise.all(
      names.map(async (name) => ({ name, at: (await stat(join(folder, name)).catch(() => null))?.mtimeMs ?? now })),
    );
    return aged
      .filter(({ name, at }) => isGarbage(name, now - at))
      .map(({ name, at }) => ({ path: join(folder, name), why, at }));
  }
}

/** Removes what `findGarbage` found. Something that was used meanwhile stays. Returns what was removed. */
export async function removeGarbage(garbage: readonly Garbage[]): Promise<Garbage[]> {
  const removed = [];
  for (const each of garbage) {
    const now = (await stat(each.path).catch(() => null))?.mtimeMs;
    if (now !== each.at) continue;
    // A program that begins now must not see half of it.
    const away = `${each.path}.removed`;
    await rename(each.path, away);
    await rm(away, { recursive: true, force: true });
    removed.push(each);
  }
  return removed;
}
