import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import type { FolderTask } from '../../core/task.ts';
import { stringifyExact } from '../../core/exact-json.ts';
import { baseEnvironment, ownMounts, pathsOf } from './sandbox-paths.ts';
import { copyFiles } from './copy-files.ts';
import { emptySandbox, handOver, type Sandbox } from './create-sandbox.ts';
import { removeNamed } from './destroy-sandbox.ts';
import { errorLine } from './error-line.ts';
import { hostWork, SandboxError, VerifierError } from './errors.ts';
import { isDiskFullForOthers } from './host-disk.ts';
import type { Isolation } from './isolation.ts';
import { verifierName } from './names.ts';
import { countOomKills, wasMachineOutOfMemory } from './oom-kills.ts';
import { readRewards, type VerifierRewards } from './read-rewards.ts';
import { sandboxUser } from './sandbox-user.ts';
import { launch } from './launcher.ts';
import type { ProcessResult } from './run-process.ts';

export type Verification = {
  task: FolderTask;
  /** The sandbox with the work. Its agent has ended. */
  sandbox: Sandbox;
  isolation: Isolation;
  signal: AbortSignal;
  /** The messages of the agent's conversation, which the tests find in a file. */
  transcript?: unknown[];
  /** Is told what each run of the tests on the work printed. */
  onOutput?: (output: Pick<ProcessResult, 'stdout' | 'stderr'>) => void;
};

export type Verdict = VerifierRewards & {
  /** An explanation for people. It is set where the rewards do not come from the verifier itself. */
  reason?: string;
  /** True when the machine ran out of memory during the run. The reward may then come from a process that was killed. */
  isInDoubt: boolean;
  /** Entries of the agent's work that are not judged: links, devices and the like. */
  skipped: string[];
  seconds: number;
};

const WORK_LIMITS = { bytes: 256 * 2 ** 20, entries: 10_000 };
/** The limits keep this to a few seconds. If it takes longer, the disk does not respond. */
const COPY_MS = 120_000;
/** The file of the agent's conversation, in the folder of logs. */
const TRANSCRIPT = 'agent/transcript.json';
const LIMITS = { outputBytes: 4 * 2 ** 20, processes: 128 };

/**
 * Verifies the agent's work in a clean sandbox, which has a copy of the work's regular files, the task's tests and empty logs, and which
 * the agent could never reach. Only what the tests write as reward counts.
 * @throws VerifierError when there is no valid reward; SandboxError when the host failed; the signal's reason on abort
 */
export async function verify({
  task,
  sandbox,
  isolation,
  signal,
  transcript = [],
  onOutput,
}: Verification): Promise<Verdict> {
  const name = verifierName(sandbox.name);
  await removeNamed(sandbox.home, name);
  try {
    signal.throwIfAborted();
    const copying = AbortSignal.any([signal, AbortSignal.timeout(COPY_MS)]);
    const { clean, skipped } = await hostWork(`verifying ${sandbox.name}`, () =>
      prepare({ task, sandbox, transcript }, name, copying),
    ).catch((error: unknown) => {
      signal.throwIfAborted();
      throw error;
    });
    signal.throwIfAborted();
    const oomKills = await countOomKills();
    const result = await runTests(task, clean, isolation, signal);
    signal.throwIfAborted();
    onOutput?.(result);
    if (await isDiskFullForOthers(clean, task.verifier.environment.storageMb))
      throw new SandboxError(`verifying ${sandbox.name}: the disk is full; free some space`);
    if (result.reason !== 'exited')
      throw new VerifierError(
        `${task.name}: the verifier ended early (${result.reason}) after ${result.seconds.toFixed(1)} s`,
        'ended_early',
      );
    const signalled = signalOf(result);
    if (signalled) throw new VerifierError(`${task.name}: the verifier was killed by ${signalled}`, 'killed');
    const isInDoubt = wasMachineOutOfMemory(result, { before: oomKills, after: await countOomKills() });
    const rewards = await readRewards(join(clean.logs, 'verifier'), describe(task, result, isolation));
    return { ...rewards, isInDoubt, skipped, seconds: result.seconds };
  } finally {
    await removeNamed(sandbox.home, name);
  }
}

type CleanSandbox = Sandbox & { tests: string };

async function prepare(
  { task, sandbox, transcript }: Required<Pick<Verification, 'task' | 'sandbox' | 'transcript'>>,
  name: string,
  signal: AbortSignal,
): Promise<{ clean: CleanSandbox; skipped: string[] }> {
  const clean = await emptySandbox(sandbox.home, name);
  const tests = join(clean.root, 'tests');
  const { skipped } = await copyFiles(sandbox.work, clean.work, WORK_LIMITS, { signal }).catch((error: unknown) => {
    if (error instanceof RangeError)
      throw new VerifierError(`${task.name}: the agent's work cannot be judged: ${error.message}`, 'too_much');
    throw error;
  });
  const bundle = await copyFiles(join(task.folder, 'tests'), tests, WORK_LIMITS, { signal });
  if (bundle.skipped.length)
    throw new VerifierError(`${task.folder}/tests holds links or special files: ${bundle.skipped.join(', ')}`);
  await mkdir(join(clean.logs, 'verifier'));
  await mkdir(join(clean.logs, 'agent'));
  await writeFile(join(clean.logs, TRANSCRIPT), stringifyExact(transcript));
  await chmod(clean.root, 0o700);
  await handOver(clean.root, clean.uid);
  return { clean: { ...clean, tests }, skipped };
}

async function runTests(
  task: FolderTask,
  clean: CleanSandbox,
  isolation: Isolation,
  signal: AbortSignal,
): Promise<ProcessResult> {
  const paths = { ...pathsOf(clean, isolation), tests: isolation.kind === 'bubblewrap' ? '/tests' : clean.tests };
  return launch({
    argv: ['bash', join(paths.tests, 'test.sh')],
    cwd: paths.work,
    env: {
      ...baseEnvironment(isolation.python, paths),
      TESTS_DIR: paths.tests,
      LOGS_DIR: paths.logs,
      WORK_DIR: paths.work,
      TRANSCRIPT_FILE: join(paths.logs, TRANSCRIPT),
      ...task.verifier.environment.env,
      ...task.verifier.env,
    },
    limits: {
      ...LIMITS,
      seconds: task.verifier.timeoutSec,
      memoryMb: task.verifier.environment.memoryMb,
      cpus: task.verifier.environment.cpus,
      storageMb: task.verifier.environment.storageMb,
    },
    isolation,
    uid: sandboxUser(isolation, clean),
    mounts: [
      ...ownMounts(clean, paths),
      // The tests are a copy for this run alone, and writable: they may hide their answers before they run foreign code.
      { host: clean.tests, inside: paths.tests, writable: true },
    ],
    network: { kind: 'none' },
    marker: clean.marker,
    root: clean.root,
    signal,
  });
}

/** A shell and bubblewrap report a signal as an exit code above 128. */
const SIGNALS = new Map(Object.entries(constants.signals).map(([name, number]) => [128 + number, name]));

function signalOf({ exitCode, signal }: ProcessResult): string | null {
  return signal ?? SIGNALS.get(exitCode ?? 0) ?? null;
}

function describe(task: FolderTask, { exitCode, signal, stderr }: ProcessResult, isolation: Isolation): string {
  const why = errorLine(stderr);
  const absolute =
    isolation.kind === 'bubblewrap'
      ? ''
      : '; without bubblewrap a test finds its folders in TESTS_DIR, LOGS_DIR and WORK_DIR, not at /tests, /logs and /app';
  return `${task.name}: tests/test.sh ended with ${signal ?? `exit code ${exitCode}`}${why ? ` (${why})` : ''}${absolute}`;
}
