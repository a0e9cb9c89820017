import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { stringifyExact } from '../../core/exact-json.ts';
import type { FolderTask, RowTask, Task } from '../../core/task.ts';
import { IMAGE_FILES } from '../tasks/plain-dockerfile.ts';
import { notCopied } from '../tasks/require-regular-files.ts';
import { placeRepository } from '../repositories/working-copy.ts';
import type { Mount } from './bubblewrap.ts';
import { copyFiles, type CopyOptions, type CopyResult } from './copy-files.ts';
import type { Image, SandboxBackend } from './backend.ts';
import { destroySandbox } from './destroy-sandbox.ts';
import type { Sandbox } from './empty-sandbox.ts';
import { hostWork, SandboxError } from './errors.ts';
import { sandboxName } from './names.ts';
import { writeInside } from './write-inside.ts';

export type SandboxRequest = {
  home: string;
  trialId: string;
  attempt: number;
  task: Task;
  backend: SandboxBackend;
  /** The image of the task; absent: the sandbox has this host's programs. */
  image?: Image | null;
  /** An empty sandbox that was started before; it becomes the attempt's. Absent: one is started. */
  started?: Sandbox | null;
  signal?: AbortSignal;
};

/**
 * Makes the folder of one attempt, with the task's environment files, its repository and its instruction; a row's has its prompt's messages too. It first removes the files and the processes of
 * an earlier call.
 * @throws SandboxError when this host cannot make one (disk full, no permission)
 */
export async function createSandbox(request: SandboxRequest): Promise<Sandbox> {
  const { home, trialId, attempt, task, backend, image = null, started, signal } = request;
  const name = sandboxName(trialId, attempt);
  const startUnlessAborted = (): Promise<Sandbox> => {
    signal?.throwIfAborted();
    return backend.start({ home, name, image });
  };
  const making = hostWork(`sandbox ${name}`, async () => {
    let sandbox = started ? { ...started, image } : null;
    try {
      await destroySandbox(request);
      sandbox ??= await startUnlessAborted();
      signal?.throwIfAborted();
      if (task.kind === 'folder') {
        await copyEnvironment(task, sandbox, image, signal);
        sandbox.mounts = await copyRepository(task, { ...sandbox, image }, backend, signal);
      } else await writePrompt(task, sandbox);
      await writeInside(sandbox.work, 'instruction.md', task.instruction);
      await backend.copyIn(sandbox, signal);
      return sandbox;
    } catch (error) {
      if (sandbox) await backend.destroy(home, sandbox.name);
      throw error;
    }
  });
  return making.catch((error: unknown) => {
    // A cancel is no fault of this host.
    signal?.throwIfAborted();
    throw error;
  });
}

async function writePrompt({ messages, row, columns }: RowTask, { work }: Sandbox): Promise<void> {
  await writeInside(work, 'messages.json', stringifyExact(messages));
  const shown = Object.entries(row).filter(([name]) => columns.includes(name));
  if (shown.length > 0) await writeInside(work, 'row.json', stringifyExact(Object.fromEntries(shown)));
}

/** A task's own image has the files of `environment/` already, at the places that its Dockerfile says. Any other has not. */
async function copyEnvironment(
  task: FolderTask,
  sandbox: Sandbox,
  image: Image | null,
  signal: AbortSignal | undefined,
): Promise<void> {
  await copyImageFiles(task, sandbox, image, signal);
  if (image !== null && task.image !== null) return;
  await copyOfTask(task, sandbox, join(task.folder, 'environment'), { ignore: IMAGE_FILES, isOver: true, signal });
}

/** The settings of a task that say what fits into its sandbox. */
type Fitting = Pick<FolderTask, 'repository'> & { environment: Pick<FolderTask['environment'], 'storageMb'> };

/** Copies what the image has in its work folder, and returns its size; null when that is empty. It is copied without the history of a repository there: it may have commits that the task's commit does not know. */
export async function copyImageFiles(
  task: Fitting,
  sandbox: Sandbox,
  image: Image | null,
  signal: AbortSignal | undefined,
): Promise<CopyResult | null> {
  if (!image?.files) return null;
  const ignore = task.repository?.path === '.' ? ['.git'] : [];
  if (!existsSync(image.files))
    throw new SandboxError(
      `the copy of the image's work folder in ${image.files} is gone: it was removed while it was needed`,
    );
  return copyOfTask(task, sandbox, image.files, { ignore, keepsLink: () => true, keepsTimes: true, signal });
}

async function copyOfTask(
  { environment }: Pick<Fitting, 'environment'>,
  { work }: Sandbox,
  from: string,
  options: CopyOptions,
): Promise<CopyResult | null> {
  const limits = { bytes: environment.storageMb * 2 ** 20, entries: 100_000 };
  const copied = await copyFiles(from, work, limits, options).catch((error: NodeJS.ErrnoException) => {
    if (error instanceof RangeError) throw new TrialgateError('bad_input', `${from}: ${error.message}`);
    if (error.code !== 'ENOENT') throw error;
    return null;
  });
  const skipped = copied?.skipped[0];
  if (skipped !== undefined) throw notCopied(join(from, skipped));
  return copied;
}

/**
 * Puts a fresh working copy of the task's repository, if it has one, into a sandbox's work folder. Returns what the sandbox must mount.
 * @throws TrialgateError `bad_input` that names the task
 */
export async function copyRepository(
  { folder, repository, environment }: FolderTask,
  { work, home, image }: Pick<Sandbox, 'work' | 'home' | 'image'>,
  { capabilities }: Pick<SandboxBackend, 'capabilities'>,
  signal = new AbortController().signal,
): Promise<Mount[]> {
  if (repository === null) return [];
  const bytes = environment.storageMb * 2 ** 20;
  return placeRepository(repository, {
    work,
    home,
    hasMounts: capabilities.mounts,
    isOver: Boolean(image?.files),
    bytes,
    signal,
  }).catch((error: unknown) => {
    if (!(error instanceof TrialgateError) || error.code !== 'bad_input') throw error;
    throw new TrialgateError('bad_input', `${join(folder, 'task.toml')}: trialgate.repository: ${error.message}`);
  });
}
