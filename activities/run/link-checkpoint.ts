import { createHash, randomUUID } from 'node:crypto';
import {
  copyFile,
  link,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
} from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, dirname, isAbsolute, join, resolve } from 'node:path';
import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';

export const MANIFEST = 'manifest.json';
/** A linked checkpoint's own link to the batch of its step, in a folder that no later checkpoint and no export copies. */
export const REPLAY = 'replay';
const BATCH = `${REPLAY}/batch.arrow`;
const manifestFile = z.looseObject({
  run_id: z.string(),
  version: z.int(),
  checkpoint_sha256: z.string(),
  /** The step is computed again from the checkpoint in the folder `parent` beside it, and from a batch. A relative path begins at the manifest. */
  replay: z.looseObject({ parent: z.string(), batch_path: z.string() }).nullish(),
});

/** Returns true when the folder is a finished checkpoint (`gpu-workers/trialgate_gpu/checkpoint.py`) that was not pruned. */
export const hasCheckpoint = (folder: string): Promise<boolean> => exists(join(folder, MANIFEST));

/** Returns true when the trainer's state of a checkpoint was removed for good (`keep_trainer_state`); its weights are there. */
export const isStatePruned = (folder: string): Promise<boolean> => exists(join(folder, 'trainer', 'pruned'));

const isStateWritten = (folder: string): Promise<boolean> => exists(join(folder, 'trainer', 'state.json'));

/** Returns the folders from which the trainer's state of a checkpoint is computed again: none if its state is written, or was pruned. */
export async function replayedFrom(folder: string): Promise<string[]> {
  const manifest =
    (await isStateWritten(folder)) || (await isStatePruned(folder))
      ? null
      : await readManifest(folder).catch(() => null);
  if (!manifest?.replay) return [];
  const parent = join(dirname(folder), manifest.replay.parent);
  return [parent, ...(await replayedFrom(parent))];
}

/**
 * Makes a checkpoint, including the trainer's state, version 0 of another run: a folder of hard links beside it, so that the first run can
 * prune its own files. Returns the folder. Repeating it finds the same folder.
 * @throws TrialgateError `bad_input` when the checkpoint no longer exists, or its trainer's state was pruned
 */
export const linkCheckpoint = (source: string, runId: string): Promise<string> => linkAs(source, runId, 0);

/** Links a checkpoint as this version of the run, and those from which its trainer's state is computed under their own versions. */
async function linkAs(source: string, runId: string, version: number | null): Promise<string> {
  const manifest = await readManifest(source);
  const [replayed] = await replayedFrom(source);
  // Where its own state has been written meanwhile, that of the one before may be pruned already.
  const before = replayed
    ? await linkAs(replayed, runId, null).catch(async (error: unknown) => {
        if (await isStateWritten(source)) return null;
        throw error;
      })
    : null;
  const replay =
    before && manifest.replay ? { ...manifest.replay, parent: basename(before), batch_path: BATCH } : manifest.replay;
  const key = createHash('sha256').update(`fork\n${runId}\n${manifest.checkpoint_sha256}`).digest('hex').slice(0, 32);
  const target = join(dirname(source), key);
  if (await hasCheckpoint(target)) return target;
  // The name has the form that `draft_folder` in `gpu-workers/trialgate_gpu/checkpoint.py` gives and `remove_leftovers` there reads: it
  // removes drafts of this host whose process is gone, these too.
  const draft = join(dirname(source), `.tmp-${key}-${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`);
  try {
    await linkTree(source, draft);
    if (before && manifest.replay && isAbsolute(manifest.replay.batch_path))
      await linkBatch(manifest.replay.batch_path, draft, source);
    await writeSynced(
      join(draft, MANIFEST),
      `${JSON.stringify({ ...manifest, replay, run_id: runId, version: version ?? manifest.version }, null, 1)}\n`,
    );
    // Pruning removes the manifest first, and marks a state before it removes it: what is there now was there when it was linked.
    await readManifest(source);
    if (await isStatePruned(source)) throw withoutState(source);
    await rename(draft, target).catch(async (error: unknown) => {
      if (!(await hasCheckpoint(target))) throw error;
    });
  } catch (error) {
    if (!(await hasCheckpoint(source))) throw gone(source, error);
    if (await isStatePruned(source)) throw withoutState(source, error);
    throw error;
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  return target;
}

async function readManifest(folder: string): Promise<z.output<typeof manifestFile>> {
  const text = await readFile(join(folder, MANIFEST), 'utf8').catch((cause: unknown) => {
    throw gone(folder, cause);
  });
  return manifestFile.parse(JSON.parse(text));
}

const gone = (folder: string, cause: unknown) =>
  new TrialgateError('bad_input', `checkpoint ${folder} is no longer there`, { cause });

const withoutState = (source: string, cause?: unknown) =>
  new TrialgateError('bad_input', `the trainer's state of checkpoint ${source} was pruned (\`keep_trainer_state\`)`, {
    cause,
  });

/** Links every file except the manifest. A base model's files are links already, to files that nobody prunes. */
async function linkTree(source: string, target: string): Promise<void> {
  await mkdir(target);
  for (const name of await readdir(source)) {
    const [from, to] = [join(source, name), join(target, name)];
    const kind = await lstat(from);
    if (kind.isDirectory()) await linkTree(from, to);
    else if (kind.isSymbolicLink()) await symlink(resolve(source, await readlink(from)), to);
    else if (basename(from) !== MANIFEST)
      await link(from, to).catch((error: NodeJS.ErrnoException) => copyWhereNoLinks(error, from, to));
  }
}

/** Links the batch of another run, because `rm` removes that run's files. */
async function linkBatch(batch: string, draft: string, source: string): Promise<void> {
  await mkdir(join(draft, REPLAY));
  const to = join(draft, BATCH);
  await link(batch, to)
    .catch((error: NodeJS.ErrnoException) => copyWhereNoLinks(error, batch, to))
    .catch((cause: unknown) => {
      throw new TrialgateError(
        'bad_input',
        `the trainer's state of checkpoint ${source} is not written, and its batch ${batch}, from which it would be computed again, cannot be linked (${String(cause)}): fork another version`,
        { cause },
      );
    });
}

async function copyWhereNoLinks(error: NodeJS.ErrnoException, from: string, to: string): Promise<void> {
  if (!['EPERM', 'EOPNOTSUPP', 'ENOTSUP', 'EMLINK', 'EXDEV'].includes(error.code ?? '')) throw error;
  await copyFile(from, to);
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

async function writeSynced(file: string, text: string): Promise<void> {
  const handle = await open(file, 'wx');
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
}
