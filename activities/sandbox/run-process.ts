import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { Readable } from 'node:stream';
import { BoundedOutput, type OnOutput } from './bounded-output.ts';
import { bubblewrapArgv, type Mount } from './bubblewrap.ts';
import { hostWork, SandboxError } from './errors.ts';
import { NO_MEMORY_KILLS, openCgroup, type Cgroup, type MemoryKills } from './cgroup.ts';
import type { Isolation } from './isolation.ts';
import { killTree, MARKER, namespaceGone } from './kill-tree.ts';
import { removeLeftFiles } from './left-files.ts';
import { limited, onCores, type Limits } from './limits.ts';
import type { Network } from './network.ts';
import type { Outside } from './egress/outside.ts';
import { EMPTY_REPORT, openGatewayLink, type GatewayLink, type LinkReport } from './open-gateway-link.ts';
import { watchStorage } from './storage-watch.ts';
import { EXTRA_PROCESSES, watchTree, type Excess } from './tree-watch.ts';

export type ProcessSpec = {
  argv: string[];
  /** The working directory, as the process sees it. */
  cwd: string;
  /** The whole environment of the process. */
  env: Record<string, string>;
  limits: Limits;
  isolation: Isolation;
  /** The sandbox's own user when root runs this. */
  uid: number | null;
  /** The mounts that the process sees under bubblewrap. Without it, `cwd` and the arguments are the host's paths. */
  mounts: Mount[];
  network: Network;
  /** The marker by which its processes are found. */
  marker: string;
  /** The sandbox's folder on the host. Its files count as the sandbox's disk space. */
  root: string;
  /** True when its processes may make namespaces. It then has no filter of system calls, so no output of a model may reach it. */
  canNest?: boolean;
  /** A file of the host that is the process's standard input. Absent: it has none. */
  stdin?: string;
  onOutput?: OnOutput;
  signal: AbortSignal;
};

export type EndReason = 'exited' | 'timed_out' | 'output_limit' | 'cancelled' | Excess;

export type ProcessResult = LinkReport &
  MemoryKills & {
    reason: EndReason;
    exitCode: number | null;
    signal: NodeJS.Signals | null;
    stdout: string;
    stderr: string;
    seconds: number;
    /** The most bytes that its sandbox had on the disk when they were counted; null when it ended before the first count. */
    diskBytes: number | null;
  };

/** Returns the result of a process that was cancelled before it started. */
export const notStarted = (): ProcessResult => ({
  reason: 'cancelled',
  exitCode: null,
  signal: null,
  stdout: '',
  stderr: '',
  seconds: 0,
  diskBytes: null,
  ...EMPTY_REPORT,
  ...NO_MEMORY_KILLS,
});

/**
 * Runs one process to its end within its limits. When it returns, the process and all that it started are dead, whatever ended it. An
 * abort takes effect at once. `outside` is the way of the egress proxy to other hosts.
 * @throws SandboxError when the sandbox itself could not be started
 */
export async function runProcess(spec: ProcessSpec, outside?: Outside): Promise<ProcessResult> {
  const { cgroup: parents } = spec.isolation;
  await using link = await linkOf(spec, outside);
  const cgroup =
    parents &&
    (await hostWork("making the sandbox's control group", async () =>
      openCgroup(parents, { ...spec.limits, processes: spec.limits.processes + EXTRA_PROCESSES }),
    ));
  const result = await runWithLink(spec, link, cgroup).finally(() => cgroup?.remove());
  // The command does not run without its relay, so this is the host's failure.
  if (result.reason === 'exited' && !(await link.relayStarted()))
    throw new SandboxError(`the sandbox's relay to the gateway could not start: ${result.stderr.trim().slice(-500)}`);
  return { ...result, ...(await link.close()) };
}

/** Opens the ways out of a sandbox for a process that has a network of its own. */
export function linkOf(
  { isolation: { kind, python }, network }: Pick<ProcessSpec, 'isolation' | 'network'>,
  outside?: Outside,
): Promise<GatewayLink> {
  return openGatewayLink({ python: kind === 'bubblewrap' ? python.executable : null, network }, outside);
}

async function runWithLink(
  spec: ProcessSpec,
  link: GatewayLink,
  cgroup: Cgroup | null,
): Promise<Omit<ProcessResult, keyof LinkReport>> {
  const namespaced = spec.isolation.kind === 'bubblewrap';
  const child = begin(spec, link, cgroup?.enter ?? onCores(spec.limits.cpus));
  const tree = { pid: child.pid ?? 0, uid: spec.uid, marker: spec.marker, namespaced };
  const status = new BoundedOutput(65536, () => {}).collect(child.status);
  const result = await supervise(spec, cgroup, {
    ...child,
    kill: () => killTree(tree),
    ended: exitOf(child.process).then(async (exit) => {
      await killTree(tree);
      if (!namespaced && spec.uid !== null) await removeLeftFiles(spec.uid);
      await drained([child.stdout, child.stderr, child.status]);
      await namespaceGone(status());
      return exit;
    }),
  });
  // bubblewrap reports the exit code of a command that it started; nothing else can write there.
  const hasReported = !namespaced || status().includes('exit-code');
  const judged = judgeMemory(result, cgroup?.memoryKills() ?? NO_MEMORY_KILLS, !hasReported);
  if (judged.reason === 'exited' && !hasReported)
    throw new SandboxError(`bubblewrap could not start the sandbox: ${result.stderr.trim().slice(-500)}`);
  return judged;
}

/** A process of a sandbox that has been started. */
export type Started = {
  pid: number | undefined;
  stdout: Readable;
  stderr: Readable;
  kill: () => Promise<void>;
  /** Resolves when none of the sandbox's processes is left. */
  ended: Promise<Exit>;
};
type Exit = { exitCode: number | null; signal: NodeJS.Signals | null };
type Supervised = Omit<ProcessResult, keyof LinkReport | keyof MemoryKills>;

/** Waits for the end of a process, and ends it when it passes a limit or when the signal aborts. */
export async function supervise(
  spec: Pick<ProcessSpec, 'limits' | 'root' | 'uid' | 'isolation' | 'canNest' | 'onOutput' | 'signal'>,
  cgroup: Cgroup | null,
  child: Started,
): Promise<Supervised> {
  const started = performance.now();
  let reason: EndReason = 'exited';
  let diskBytes: number | null = null;
  const end = (why: EndReason): void => {
    if (reason === 'exited') reason = why;
    void child.kill();
  };
  const { outputBytes, cutsOutput = false } = spec.limits;
  const output = new BoundedOutput(outputBytes, cutsOutput ? null : () => end('output_limit'));
  const { onOutput } = spec;
  const stdout = output.collect(child.stdout, onOutput && ((text) => onOutput('stdout', text)));
  const stderr = output.collect(child.stderr, onOutput && ((text) => onOutput('stderr', text)));
  const stopClock = onTimeUp(spec.limits, () => end('timed_out'));
  const unwatch = watch(spec, child.pid, cgroup, end, (bytes) => (diskBytes = Math.max(diskBytes ?? 0, bytes)));
  const cancel = (): void => end('cancelled');
  spec.signal.addEventListener('abort', cancel, { once: true });
  if (spec.signal.aborted) cancel();
  try {
    const exit = await child.ended;
    const seconds = (performance.now() - started) / 1000;
    return { reason, ...exit, stdout: stdout(), stderr: stderr(), seconds, diskBytes };
  } finally {
    stopClock();
    unwatch();
    spec.signal.removeEventListener('abort', cancel);
  }
}

/** Calls `end` when the time is up, without the seconds that do not count. Returns a stop function. */
function onTimeUp({ seconds, uncounted }: Limits, end: () => void): () => void {
  let granted = 0;
  let isStopped = false;
  const check = async (): Promise<void> => {
    const added = Math.min(seconds, (await uncounted?.().catch(() => 0)) ?? 0) - granted;
    if (isStopped) return;
    if (added < 1) return end();
    granted += added;
    timer = setTimeout(() => void check(), added * 1000);
  };
  let timer = setTimeout(() => void check(), seconds * 1000);
  return () => {
    isStopped = true;
    clearTimeout(timer);
  };
}

/** A process that the kernel killed at its control group's limit has used up its memory. */
export function judgeMemory<R extends Supervised>(result: R, memory: MemoryKills, wasKilled: boolean): R & MemoryKills {
  const isKilled = wasKilled || result.signal === 'SIGKILL' || result.exitCode === SIGKILL_EXIT;
  const isOut = result.reason === 'exited' && isKilled && memory.oomKills && memory.hitMemoryLimit;
  return { ...result, ...memory, ...(isOut ? { reason: 'out_of_memory' } : {}) };
}

async function exitOf(process: ChildProcess): Promise<Exit> {
  return new Promise((resolve, reject) => {
    process.once('error', (error) =>
      reject(new SandboxError(`the sandbox could not be started: ${error.message}`, { cause: error })),
    );
    process.once('exit', (exitCode, signal) => resolve({ exitCode, signal }));
  });
}

/** The exit status that a shell gives a command that SIGKILL ended. */
const SIGKILL_EXIT = 137;

/** Watches the limits that the kernel does not enforce. */
function watch(
  { limits, root, uid, isolation, canNest }: Pick<ProcessSpec, 'limits' | 'root' | 'uid' | 'isolation' | 'canNest'>,
  pid: number | undefined,
  cgroup: Cgroup | null,
  onExcess: (excess: Excess) => void,
  onCount: (bytes: number) => void,
): () => void {
  // Each trial of a fork server has watches of its own. The server's would count them together, and one could end all others.
  if (!pid || canNest) return () => {};
  const stops = [watchStorage({ ...limits, root, pid, uid, isolation, onExcess, onCount })];
  if (!cgroup) stops.push(watchTree({ ...limits, pid, uid, onExcess }));
  return () => stops.forEach((stop) => stop());
}

function begin(
  { argv, cwd, env, limits, isolation, uid, mounts, marker, network, canNest = false, stdin }: ProcessSpec,
  link: GatewayLink,
  enter: string[],
) {
  const { bwrap, python, kind, seccomp } = isolation;
  const wrapped = kind === 'bubblewrap' && bwrap !== null;
  const inside = {
    uid,
    python,
    mounts: [...mounts, ...link.mounts],
    cwd,
    hostNetwork: network.kind === 'host',
    canNest,
  };
  // The filter allows no namespaces.
  const filter = wrapped && seccomp && !canNest ? openSync(seccomp, 'r') : null;
  const input = stdin === undefined ? null : openSync(stdin, 'r');
  const wrap = wrapped
    ? bubblewrapArgv({ bwrap, ...inside, statusFd: 3, ...(filter === null ? {} : { seccompFd: 4 }) })
    : [];
  // The relay's processes are of the same user. They do not use up the agent's limit.
  const processes = limits.processes + link.relayProcesses;
  const [command = '', ...args] = [
    ...enter,
    ...wrap,
    ...link.relay,
    ...limited(argv, { ...limits, processes }, isolation, uid),
  ];
  const child = spawn(command, args, {
    cwd: wrapped ? '/' : cwd,
    env: environmentOf({ env, marker }),
    stdio: [
      input ?? 'ignore',
      'pipe',
      'pipe',
      ...(wrapped ? ['pipe' as const] : []),
      ...(filter === null ? [] : [filter]),
    ],
    detached: true,
  });
  for (const descriptor of [filter, input]) if (descriptor !== null) closeSync(descriptor);
  const [stdout, stderr] = [child.stdout, child.stderr];
  if (!stdout || !stderr) throw new SandboxError('the sandbox has no output pipes');
  const status = child.stdio[3];
  return {
    process: child,
    pid: child.pid,
    stdout,
    stderr,
    status: status instanceof Readable ? status : Readable.from([]),
  };
}

/** Returns the environment of a sandbox's process, which is all that it gets from its worker. */
export const environmentOf = ({ env, marker }: Pick<ProcessSpec, 'env' | 'marker'>): Record<string, string> => ({
  ...env,
  [MARKER]: marker,
});

/** Reads what was written before the end. It does not wait for a pipe that another process still holds open. */
export async function drained(streams: Readable[]): Promise<void> {
  const closed = streams.map(
    (stream) => new Promise<void>((resolve) => void (stream.closed ? resolve() : stream.once('close', resolve))),
  );
  const patience = setTimeout(() => streams.forEach((stream) => stream.destroy()), 500);
  await Promise.all(closed);
  clearTimeout(patience);
}
