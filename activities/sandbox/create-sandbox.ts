import { lchown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { stringifyExact } from '../../core/exact-json.ts';
import type { FolderTask, RowTask, Task } from '../../core/task.ts';
import { IMAGE_FILES } from '../tasks/plain-dockerfile.ts';
import { notCopied } from '../tasks/require-regular-files.ts';
import { copyFiles } from './copy-files.ts';
import { destroySandbox, removeNamed } from './destroy-sandbox.ts';
import { hostWork } from './errors.ts';
import { markerOf, sandboxName } from './names.ts';
import { claimUid } from './own-uid.ts';
import { writeOwner } from './owner.ts';
import { openSandboxesFolder } from './sandboxes-folder.ts';
import { discard } from './trash.ts';
import { walkFiles } from './walk-files.ts';

/** The sandbox of an attempt on this host. It is plain data, so that it can travel between activities of the same host. */
export type Sandbox = {
  name: string;
  /** The deployment's folder. */
  home: string;
  root: string;
  /** The agent's working directory. */
  work: string;
  /** The agent's HOME. */
  agentHome: string;
  tmp: string;
  /** The folder that is /dev/shm under bubblewrap. */
  shm: string;
  logs: string;
  /** Its own user when root runs the worker; otherwise null. */
  uid: number | null;
  /** The marker by which its processes are found on this machine. */
  marker: string;
};

export type SandboxRequest = { home: string; trialId: string; attempt: number; task: Task; signal?: AbortSignal };

/**
 * Makes the folder of one attempt, with the task's environment files and its instruction; a row's has its prompt's messages too. It first removes the files and the processes of
 * an earlier call.
 * @throws SandboxError when this host cannot make one (disk full, no permission)
 */
export async function createSandbox({ home, trialId, attempt, task, signal }: SandboxRequest): Promise<Sandbox> {
  const name = sandboxName(trialId, attempt);
  await destroySandbox({ home, trialId, attempt });
  return hostWork(`sandbox ${name}`, async () => {
    signal?.throwIfAborted();
    const sandbox = await emptySandbox(home, name);
    try {
      if (task.kind === 'folder') await copyEnvironment(task, sandbox, signal);
      else await writePrompt(task, sandbox);
      await writeFile(join(sandbox.work, 'instruction.md'), task.instruction);
      await handOver(sandbox.root, sandbox.uid);
      return sandbox;
    } catch (error) {
      await removeNamed(home, name);
      throw error;
    }
  });
}

async function writePrompt({ messages, row, columns }: RowTask, { work }: Sandbox): Promise<void> {
  await writeFile(join(work, 'messages.json'), JSON.stringify(messages));
  const shown = Object.entries(row).filter(([name]) => columns.includes(name));
  if (shown.length > 0) await writeFile(join(work, 'row.json'), stringifyExact(Object.fromEntries(shown)));
}

async function copyEnvironment(task: FolderTask, { work }: Sandbox, signal: AbortSignal | undefined): Promise<void> {
  const from = join(task.folder, 'environment');
  const limits = { bytes: task.environment.storageMb * 2 ** 20, entries: 100_000 };
  const copied = await copyFiles(from, work, limits, { ignore: IMAGE_FILES, signal }).catch(
    (error: NodeJS.ErrnoException) => {
      if (error instanceof RangeError) throw new TrialgateError('bad_input', `${from}: ${error.message}`);
      if (error.code !== 'ENOENT') throw error;
    },
  );
  const skipped = copied?.skipped[0];
  if (skipped !== undefined) throw notCopied(join(from, skipped));
}

/** Makes the empty folders and the user that owns them. */
export async function emptySandbox(home: string, name: string): Promise<Sandbox> {
  const parent = await openSandboxesFolder(home);
  const uid = await claimUid(home, name);
  await writeOwner(home, name, uid);
  const root = join(parent, name);
  const inside = {
    work: join(root, 'work'),
    agentHome: join(root, 'home'),
    tmp: join(root, 'tmp'),
    shm: join(root, 'shm'),
    logs: join(root, 'logs'),
  };
  // The new sandbox must not contain files of an older sandbox of this name. This fails if they cannot be moved away.
  await discard(home, name);
  await mkdir(root, { mode: 0o700 });
  for (const folder of Object.values(inside)) await mkdir(folder);
  return { name, home, root, uid, marker: markerOf(home, name), ...inside };
}

/** Makes the sandbox's user the owner of all files in the sandbox. */
export async function handOver(folder: string, uid: number | null): Promise<void> {
  if (uid === null) return;
  for await (const { path } of walkFiles(folder)) await lchown(path, uid, uid);
  await lchown(folder, uid, uid);
}
