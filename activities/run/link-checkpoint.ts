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
import { basename, dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';

export const MANIFEST = 'manifest.json';
const manifestFile = z.looseObject({ run_id: z.string(), version: z.int(), checkpoint_sha256: z.string() });

/** Returns true when the folder is a finished checkpoint (`gpu-workers/trialgate_gpu/checkpoint.py`) that was not pruned. */
export const hasCheckpoint = (folder: string): Promise<boolean> =>
  stat(join(folder, MANIFEST)).then(
    () => true,
    () => false,
  );

/**
 * Makes a checkpoint, including the trainer's state, version 0 of another run: a folder of hard links beside it, so that the first run can
 * prune its own files. Returns the folder. Repeating it finds the same folder.
 * @throws TrialgateError `bad_input` when the checkpoint no longer exists
 */
export async function linkCheckpoint(source: string, runId: string): Promise<string> {
  const manifest = await readManifest(source);
  const key = createHash('sha256').update(`fork\n${runId}\n${manifest.checkpoint_sha256}`).digest('hex').slice(0, 32);
  const target = join(dirname(source), key);
  if (await hasCheckpoint(target)) return target;
  // The name has the form that `draft_folder` in `gpu-workers/trialgate_gpu/checkpoint.py` gives and `remove_leftovers` there reads: it
  // removes drafts of this host whose process is gone, these too.
  const draft = join(dirname(source), `.tmp-${key}-${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`);
  try {
    await linkTree(source, draft);
    await writeSynced(
      join(draft, MANIFEST),
      `${JSON.stringify({ ...manifest, run_id: runId, version: 0 }, null, 1)}\n`,
    );
    // Pruning removes the manifest first: when it still exists, every file existed when it was linked.
    await readManifest(source);
    await rename(draft, target).catch(async (error: unknown) => {
      if (!(await hasCheckpoint(target))) throw error;
    });
  } catch (error) {
    if (await hasCheckpoint(source)) throw error;
    throw gone(source, error);
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

async function copyWhereNoLinks(error: NodeJS.ErrnoException, from: string, to: string): Promise<void> {
  if (!['EPERM', 'EOPNOTSUPP', 'ENOTSUP', 'EMLINK', 'EXDEV'].includes(error.code ?? '')) throw error;
  await copyFile(from, to);
}

async function writeSynced(file: string, text: string): Promise<void> {
  const handle = await open(file, 'wx');
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
}
