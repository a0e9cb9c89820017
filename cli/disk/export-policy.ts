import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { cp, mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { and, desc, eq } from 'drizzle-orm';
import { hasCheckpoint, MANIFEST, REPLAY } from '../../activities/run/link-checkpoint.ts';
import { missingCheckpoint } from '../../activities/run/missing-checkpoint.ts';
import { readRun } from '../../activities/run/read-run.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { Database } from '../../store/database.ts';
import { policyVersions } from '../../store/schema.ts';
import { capture, lastLine } from '../checks/capture.ts';
import { INSTALLS } from '../folders.ts';
import { readRunRecord } from '../show/run-record.ts';
import { modelCard } from './model-card.ts';

/** The files and folders that a checkpoint has beside the model or the adapter. An adapter's base folder links to another model's files. */
const TRAINER_FILES = [MANIFEST, REPLAY, 'trainer', 'base'];

/**
 * Writes a policy version as a Hugging Face model folder: weights, configuration, tokenizer, chat template, and a card that says where it comes
 * from. A LoRA adapter is merged into its base, or written alone in peft's format. Returns the version.
 * @param version absent: the newest one whose checkpoint is still there
 * @param adapter writes the adapter alone
 * @throws TrialgateError `bad_input` when the folder exists, or the version has no checkpoint; then nothing is written
 */
export async function exportPolicy(
  db: Database,
  { runId, version }: { runId: string; version?: number },
  folder: string,
  { adapter = false, signal }: { adapter?: boolean; signal: AbortSignal },
): Promise<number> {
  if (await stat(folder).catch(() => null))
    throw new TrialgateError('bad_input', `${folder} exists already: name a folder that does not`);
  const found = await findVersion(db, runId, version);
  const record = await readRunRecord(db, runId);
  const hasAdapter = existsSync(join(found.checkpoint, 'base'));
  if (adapter && !hasAdapter)
    throw new TrialgateError(
      'bad_input',
      `run ${runId} trains all weights (\`lora_rank: 0\`), so version ${found.version} has no adapter: export it without --adapter`,
    );
  const draft = join(dirname(folder), `.trialgate-export-${randomUUID().slice(0, 8)}`);
  try {
    await mkdir(draft, { recursive: true });
    if (hasAdapter && !adapter) await merge(found.checkpoint, draft, signal);
    else
      for (const name of await readdir(found.checkpoint))
        if (!TRAINER_FILES.includes(name))
          await cp(join(found.checkpoint, name), join(draft, name), { recursive: true, dereference: true });
    await writeFile(join(draft, 'README.md'), modelCard(record, await readRun(db, runId), found.version));
    // The run may have pruned the checkpoint meanwhile.
    if (!(await hasCheckpoint(found.checkpoint)))
      throw new TrialgateError(
        'bad_input',
        `the run has removed version ${found.version} meanwhile: export a newer one`,
      );
    await rename(draft, folder);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  return found.version;
}

async function merge(checkpoint: string, folder: string, signal: AbortSignal): Promise<void> {
  const command = [INSTALLS.python, '-m', 'trialgate_gpu.merge', checkpoint, folder];
  const { code, stderr } = await capture(command, signal, { PYTHONPATH: INSTALLS.gpuWorkers });
  if (code === 0) return;
  throw new TrialgateError(
    'missing_prerequisite',
    `the adapter could not be merged into its base: ${lastLine(stderr)}. --adapter exports it alone`,
  );
}

async function findVersion(db: Database, runId: string, version: number | undefined) {
  const ofRun = eq(policyVersions.runId, runId);
  const versions = await db
    .select()
    .from(policyVersions)
    .where(version === undefined ? ofRun : and(ofRun, eq(policyVersions.version, version)))
    .orderBy(desc(policyVersions.version));
  for (const each of versions) if (await hasCheckpoint(each.checkpoint)) return each;
  await readRun(db, runId);
  const [known] = version === undefined ? [] : versions;
  const what =
    version === undefined ? `run ${runId} has no checkpoint` : `run ${runId} has no policy version ${version}`;
  throw new TrialgateError('bad_input', `${known ? missingCheckpoint(known) : what}${await others(db, runId)}`);
}

/** Returns which versions of a run have a checkpoint, as the end of a sentence. */
async function others(db: Database, runId: string): Promise<string> {
  const all = await db.select().from(policyVersions).where(eq(policyVersions.runId, runId));
  const there = await Promise.all(
    all.map(async (each) => ((await hasCheckpoint(each.checkpoint)) ? [each.version] : [])),
  );
  const versions = [...new Set(there.flat())].toSorted((a, b) => a - b);
  return versions.length === 0 ? '' : `. Versions with a checkpoint: ${versions.join(', ')}`;
}
