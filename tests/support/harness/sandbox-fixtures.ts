import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { chmodSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadTask } from '../../../activities/tasks/load-task.ts';
import { IN_GATE } from './in-gate.ts';
import type { FolderTask, Task } from '../../../core/task.ts';
import { createSandbox } from '../../../activities/sandbox/create-sandbox.ts';
import type { Sandbox } from '../../../activities/sandbox/empty-sandbox.ts';
import { detectIsolation, type Isolation } from '../../../activities/sandbox/isolation.ts';
import type { Limits } from '../../../activities/sandbox/limits.ts';
import type { Mount } from '../../../activities/sandbox/bubblewrap.ts';
import { launch } from '../../../activities/sandbox/launcher.ts';
import type { Network } from '../../../activities/sandbox/network.ts';
import type { LaunchSpec } from '../../../activities/sandbox/launcher-process.ts';
import type { ProcessResult } from '../../../activities/sandbox/run-process.ts';
import { sandboxUser } from '../../../activities/sandbox/sandbox-user.ts';
import { openBackend } from '../../../activities/sandbox/backends.ts';

const backend = await openBackend();

export const limits: Limits = {
  seconds: 10,
  memoryMb: 512,
  outputBytes: 100_000,
  processes: 32,
  cpus: 2,
  storageMb: 10,
};

/** Returns every form of isolation that works on this machine for this user, the strongest first. */
export async function isolations(): Promise<Isolation[]> {
  const [best, plain] = [await detectIsolation(), await detectIsolation({ bwrap: null })];
  const none: Isolation = { ...plain, kind: 'none', ownUser: false, cgroup: null };
  return [...new Map([best, plain, none].map((one) => [one.kind, one])).values()];
}

/**
 * Returns the forms of isolation in which a file repeats its tests: all, or in the gate (`npm test`) only the strongest. `guarantees.test.ts`
 * shows all forms in the gate too.
 */
export async function testedIsolations(): Promise<Isolation[]> {
  const all = await isolations();
  return process.env[IN_GATE] ? all.slice(0, 1) : all;
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
  const sandbox = await createSandbox({
    backend,
    home,
    trialId,
    attempt: 1,
    task: task ?? (await taskWith(home, 'true')),
  });
  await writeFiles(sandbox.work, files);
  return sandbox;
}

type Options = Partial<Limits> & {
  signal?: AbortSignal;
  env?: Record<string, string>;
  network?: Network;
  mounts?: Mount[];
};

/** A form of isolation; `isWarm` runs scripts in forks of a warm process. */
export type TestIsolation = Isolation & { isWarm?: true };

/** Runs a bash script where an agent would run. */
export function shell(
  isolation: TestIsolation,
  sandbox: Sandbox,
  script: string,
  options: Options = {},
): Promise<ProcessResult> {
  return launch(specOf(isolation, sandbox, script, options));
}

/** Returns true where a sandbox can have namespaces of its own, which forks of a warm process need. Some machines allow them to bubblewrap alone. */
export async function canNest(isolation: Isolation): Promise<boolean> {
  if (isolation.kind !== 'bubblewrap') return false;
  await using folder = await temporaryHome();
  const spec = specOf(isolation, await sandboxWith(folder.home, {}), '');
  const argv = ['unshare', '--user', '--pid', '--fork', '--mount-proc', 'true'];
  return (await launch({ ...spec, argv, canNest: true })).exitCode === 0;
}

const WARM_SHELL = fileURLToPath(new URL('./warm-shell', import.meta.url));

export function specOf(
  { isWarm, ...isolation }: TestIsolation,
  sandbox: Sandbox,
  script: string,
  options: Options = {},
): LaunchSpec {
  const { signal = new AbortController().signal, env = {}, network = { kind: 'none' }, mounts = [], ...some } = options;
  const inside = isolation.kind === 'bubblewrap' ? '/app' : sandbox.work;
  const base = { PATH: `${dirname(isolation.python.executable)}:/usr/bin:/bin`, ...env };
  const forkServer = {
    home: sandbox.home,
    argv: [isolation.python.executable, '-B', '/warm-shell/warm_shell.py'],
    env: base,
    mounts: [{ host: WARM_SHELL, inside: '/warm-shell', writable: false }, ...mounts],
  };
  return {
    argv: ['bash', '-c', script],
    cwd: inside,
    env: isWarm ? { ...base, SCRIPT: script } : base,
    ...(isWarm ? { forkServer } : {}),
    limits: { ...limits, ...some },
    isolation,
    uid: sandboxUser(isolation, sandbox),
    mounts: [
      { host: sandbox.work, inside, writable: true },
      { host: sandbox.tmp, inside: '/tmp', writable: true },
      { host: sandbox.shm, inside: '/dev/shm', writable: true },
      ...sandbox.mounts,
      ...mounts,
    ],
    network,
    marker: sandbox.marker,
    root: sandbox.root,
    signal,
  };
}
