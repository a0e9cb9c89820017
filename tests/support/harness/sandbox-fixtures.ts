import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { chmodSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { loadTask } from '../../../activities/tasks/load-task.ts';
import type { FolderTask, Task } from '../../../core/task.ts';
import { createSandbox, type Sandbox } from '../../../activities/sandbox/create-sandbox.ts';
import { detectIsolation, type Isolation } from '../../../activities/sandbox/isolation.ts';
import type { Limits } from '../../../activities/sandbox/limits.ts';
import type { Mount } from '../../../activities/sandbox/bubblewrap.ts';
import { launch } from '../../../activities/sandbox/launcher.ts';
import type { Network } from '../../../activities/sandbox/network.ts';
import type { ProcessResult, ProcessSpec } from '../../../activities/sandbox/run-process.ts';
import { sandboxUser } from '../../../activities/sandbox/sandbox-user.ts';

export const limits: Limits = {
  seconds: 10,
  memoryMb: 512,
  outputBytes: 100_000,
  processes: 32,
  cpus: 2,
  storageMb: 10,
};

/** Returns every form of isolation that works on this machine for this user. */
export async function isolations(): Promise<Isolation[]> {
  const [best, plain] = [await detectIsolation(), await detectIsolation({ bwrap: null })];
  const none: Isolation = { ...plain, kind: 'none', ownUser: false, cgroup: null };
  return [...new Map([best, plain, none].map((one) => [one.kind, one])).values()];
}

/** Makes a deployment's folder that sandbox users can reach. Disposal removes it. */
export async function temporaryHome(): Promise<{ home: string } & AsyncDisposable> {
  const home = await mkdtemp(join(tmpdir(), 'trialgate-sandbox-'));
  chmodSync(home, 0o755);
  return { home, [Symbol.asyncDispose]: () => rm(home, { recursive: true, force: true }) };
}

export async function writeFiles(folder: string, files: Record<string, string>): Promise<void> {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  }
}

/** Makes a task whose tests are the given shell script. */
export async function taskWith(
  home: string,
  testScript: string,
  files: Record<string, string> = {},
): Promise<FolderTask> {
  const folder = join(home, 'task');
  await mkdir(folder, { recursive: true });
  await writeFiles(folder, {
    'task.toml': '[verifier]\ntimeout_sec = 2\n',
    'instruction.md': 'Do it.',
    'tests/test.sh': testScript,
    ...files,
  });
  return loadTask(folder);
}

export async function sandboxWith(
  home: string,
  files: Record<string, string>,
  task?: Task,
  trialId = 't',
): Promise<Sandbox> {
  const sandbox = await createSandbox({ home, trialId, attempt: 1, task: task ?? (await taskWith(home, 'true')) });
  await writeFiles(sandbox.work, files);
  return sandbox;
}

type Options = Partial<Limits> & {
  signal?: AbortSignal;
  env?: Record<string, string>;
  network?: Network;
  mounts?: Mount[];
};

/** Runs a bash script where an agent would run. */
export function shell(
  isolation: Isolation,
  sandbox: Sandbox,
  script: string,
  options: Options = {},
): Promise<ProcessResult> {
  return launch(specOf(isolation, sandbox, script, options));
}

export function specOf(isolation: Isolation, sandbox: Sandbox, script: string, options: Options = {}): ProcessSpec {
  const { signal = new AbortController().signal, env = {}, network = { kind: 'none' }, mounts = [], ...some } = options;
  const inside = isolation.kind === 'bubblewrap' ? '/app' : sandbox.work;
  return {
    argv: ['bash', '-c', script],
    cwd: inside,
    env: { PATH: `${dirname(isolation.python.executable)}:/usr/bin:/bin`, ...env },
    limits: { ...limits, ...some },
    isolation,
    uid: sandboxUser(isolation, sandbox),
    mounts: [
      { host: sandbox.work, inside, writable: true },
      { host: sandbox.tmp, inside: '/tmp', writable: true },
      { host: sandbox.shm, inside: '/dev/shm', writable: true },
      ...mounts,
    ],
    network,
    marker: sandbox.marker,
    root: sandbox.root,
    signal,
  };
}
