import { chmod, mkdir, readlink, writeFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import type { FolderTask } from '../../core/task.ts';
import { stringifyExact } from '../../core/exact-json.ts';
import type { Command, Image, SandboxBackend } from './backend.ts';
import { baseEnvironment } from './sandbox-paths.ts';
import { copyChanges } from './copy-changes.ts';
import { copyFiles } from './copy-files.ts';
import { copyImageFiles, copyRepository } from './create-sandbox.ts';
import type { Sandbox } from './empty-sandbox.ts';
import { errorLine } from './error-line.ts';
import { hostWork, SandboxError, VerifierError } from './errors.ts';
import { isDiskFullForOthers } from './host-disk.ts';
import { verifierName } from './names.ts';
import { proxyVariables, type Network } from './network.ts';
import { countOomKills, wasMachineOutOfMemory } from './oom-kills.ts';
import { startsOfHost } from './starts.ts';
import { joinBytes } from './walk-files.ts';
import { readRewards, type VerifierRewards } from './read-rewards.ts';
import type { ProcessResult } from './run-process.ts';

export type Verification = {
  task: FolderTask;
  /** The sandbox with the work. Its agent has ended. */
  sandbox: Sandbox;
  /** The kind of the clean sandbox. */
  backend: SandboxBackend;
  /** The image of the clean sandbox; absent: that of the agent's sandbox. */
  image?: Image | null;
  signal: AbortSignal;
  /** The messages of the agent's conversation, which the tests find in a file. */
  transcript?: unknown[];
  /** Is told what each run of the tests on the work printed. */
  onOutput?: (output: Pick<ProcessResult, 'stdout' | 'stderr' | 'egress'>) => void;
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
 * the agent could never reach. Of a repository it has a fresh working copy with the agent's changes: nothing of the agent's `.git`. Only what the tests write as reward counts.
 * @throws VerifierError when there is no valid reward; SandboxError when the host failed; the signal's reason on abort
 */
export async function verify({
  task,
  sandbox,
  backend,
  image = sandbox.image,
  signal,
  transcript = [],
  onOutput,
}: Verification): Promise<Verdict> {
  const name = verifierName(sandbox.name);
  try {
    signal.throwIfAborted();
    const { clean, skipped } = await hostWork(`verifying ${sandbox.name}`, () =>
      startsOfHost().run({
        what: `the sandbox of the tests of ${sandbox.name}`,
        signal,
        start: (within) => {
          const copying = AbortSignal.any([within, AbortSignal.timeout(COPY_MS)]);
          return prepare({ task, sandbox, transcript, backend, image }, name, copying);
        },
        undo: () => backend.destroy(sandbox.home, name),
      }),
    ).catch((error: unknown) => {
      signal.throwIfAborted();
      throw error;
    });
    signal.throwIfAborted();
    const oomKills = await countOomKills();
    const result = await runTests(task, clean, backend, signal);
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
    const rewards = await readRewards(join(clean.logs, 'verifier'), describe(task, result, backend));
    return { ...rewards, isInDoubt, skipped, seconds: result.seconds };
  } finally {
    await backend.destroy(sandbox.home, name);
  }
}

/** An image's own links are part of the task. One that the agent made could lead the tests to a file of its choice. */
const isLinkIn =
  (files: string) =>
  async (path: Buffer, target: Buffer): Promise<boolean> => {
    const own = await readlink(joinBytes(files, path), { encoding: 'buffer' }).catch(() => null);
    return own?.equals(target) ?? false;
  };

/** The folder of the tests' copy, on the host. */
const testsIn = ({ root }: Sandbox): string => join(root, 'tests');

async function prepare(
  {
    task,
    sandbox,
    transcript,
    backend,
    image,
  }: Required<Pick<Verification, 'task' | 'sandbox' | 'transcript' | 'backend' | 'image'>>,
  name: string,
  signal: AbortSignal,
): Promise<{ clean: Sandbox; skipped: string[] }> {
  const clean = await backend.start({ home: sandbox.home, name, image });
  const tests = testsIn(clean);
  // What the agent's sandbox began with is no change of its own.
  if (task.repository !== null) await copyImageFiles(task, clean, sandbox.image, signal);
  clean.mounts = await copyRepository(task, { ...clean, image: sandbox.image }, backend, signal);
  const keepsLink = image?.files ? { keepsLink: isLinkIn(image.files) } : {};
  const copying =
    task.repository === null
      ? copyFiles(sandbox.work, clean.work, WORK_LIMITS, { signal, ...keepsLink })
      : copyChanges(sandbox.work, clean.work, WORK_LIMITS, { repository: task.repository.path, signal });
  const { skipped } = await copying.catch((error: unknown) => {
    if (error instanceof RangeError)
      throw new VerifierError(`${task.name}: the agent's work cannot be judged: ${error.message}`, 'too_much');
    throw error;
  });
  const bundle = await copyFiles(join(task.folder, 'tests'), tests, WORK_LIMITS, { signal });
  if (bundle.skipped.length)
    throw new VerifierError(`${task.folder}/tests holds links or special files: ${bundle.skipped.join(', ')}`);
  await chmod(join(tests, 'test.sh'), 0o755);
  await mkdir(join(clean.logs, 'verifier'));
  await mkdir(join(clean.logs, 'agent'));
  await writeFile(join(clean.logs, TRANSCRIPT), stringifyExact(transcript));
  await chmod(clean.root, 0o700);
  await backend.copyIn(clean, signal);
  return { clean, skipped };
}

async function runTests(
  task: FolderTask,
  clean: Sandbox,
  backend: SandboxBackend,
  signal: AbortSignal,
): Promise<ProcessResult> {
  const result = await backend.run(clean, testsCommand(task, clean, backend, signal));
  await backend.copyOut(clean, signal);
  return result;
}

/** Runs a script by its own first line (`#!/bin/bash -e`), as Harbor does; where files of this disk cannot be executed, by bash. */
const RUN_SCRIPT = '[ -x "$0" ] && exec "$0"; exec bash "$0"';

/** Returns the process of a task's tests, with all that it is given. */
export function testsCommand(task: FolderTask, clean: Sandbox, backend: SandboxBackend, signal: AbortSignal): Command {
  const { hosts } = task.verifier;
  const network: Network =
    hosts.length > 0 && backend.capabilities.networks.includes('gateway')
      ? { kind: 'hosts', hosts, folder: clean.root }
      : { kind: 'none' };
  const tests = testsIn(clean);
  const paths = { ...backend.pathsOf(clean), tests: backend.capabilities.mounts ? '/tests' : tests };
  return {
    argv: ['bash', '-c', RUN_SCRIPT, join(paths.tests, 'test.sh')],
    cwd: paths.work,
    env: {
      ...baseEnvironment(backend.pythonOf(clean), paths),
      ...clean.image?.env,
      TESTS_DIR: paths.tests,
      LOGS_DIR: paths.logs,
      WORK_DIR: paths.work,
      TRANSCRIPT_FILE: join(paths.logs, TRANSCRIPT),
      ...proxyVariables(network),
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
    mounts: [
      // The tests are a copy for this run alone, and writable: they may hide their answers before they run foreign code.
      { host: tests, inside: paths.tests, writable: true },
      ...clean.mounts,
    ],
    network,
    signal,
  };
}

/** A shell and bubblewrap report a signal as an exit code above 128. */
const SIGNALS = new Map(Object.entries(constants.signals).map(([name, number]) => [128 + number, name]));

function signalOf({ exitCode, signal }: ProcessResult): string | null {
  return signal ?? SIGNALS.get(exitCode ?? 0) ?? null;
}

function describe(task: FolderTask, { exitCode, signal, stderr }: ProcessResult, backend: SandboxBackend): string {
  const why = errorLine(stderr);
  const absolute = backend.capabilities.mounts
    ? ''
    : '; without bubblewrap a test finds its folders in TESTS_DIR, LOGS_DIR and WORK_DIR, not at /tests, /logs and /app';
  return `${task.name}: tests/test.sh ended with ${signal ?? `exit code ${exitCode}`}${why ? ` (${why})` : ''}${absolute}`;
}
