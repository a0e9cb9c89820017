import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { Readable } from 'node:stream';
import { BoundedOutput } from './bounded-output.ts';
import { bubblewrapArgv, type Mount } from './bubblewrap.ts';
import { hostWork, SandboxError } from './errors.ts';
import { NO_MEMORY_KILLS, openCgroup, type Cgroup, type MemoryKills } from './cgroup.ts';
import type { GatewayFailures } from './gateway-watch.ts';
import type { Isolation } from './isolation.ts';
import { killTree, MARKER, namespaceGone } from './kill-tree.ts';
import { removeLeftFiles } from './left-files.ts';
import { limited, onCores, type Limits } from './limits.ts';
import type { Network } from './network.ts';
import { openGatewayLink, type GatewayLink } from './open-gateway-link.ts';
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
  /** A file of the host that is the process's standard input. Absent: it has none. */
  stdin?: string;
  signal: AbortSignal;
};

export type EndReason = 'exited' | 'timed_out' | 'output_limit' | 'cancelled' | Excess;

export type ProcessResult = GatewayFailures &
  MemoryKills & {
    reason: EndReason;
    exitCode: number | null;
    signal: NodeJS.Signals | null;
    stdout: string;
    stderr: string;
    seconds: number;
  };

/**
 * Runs one process to its end within its limits. When it returns, the process and all that it started are dead, whatever ended it. An
 * abort takes effect at once.
 * @throws SandboxError when the sandbox itself could not be started
 */
export async function runProcess(spec: ProcessSpec): Promise<ProcessResult> {
  await using link = await openGatewayLink(spec);
  const { cgroup: parents } = spec.isolation;
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

async function runWithLink(
  spec: ProcessSpec,
  link: GatewayLink,
  cgroup: Cgroup | null,
): Promise<Omit<ProcessResult, keyof GatewayFailures>> {
  const started = performance.now();
  const elapsed = (): number => (performance.now() - started) / 1000;
  const namespaced = spec.isolation.kind === 'bubblewrap';
  const child = begin(spec, link, cgroup?.enter ?? onCores(spec.limits.cpus));
  const exit = await new Promise<Exit>((resolve, reject) => {
    let reason: EndReason = 'exited';
    const tree = { pid: child.pid ?? 0, uid: spec.uid, marker: spec.marker, namespaced };
    const end = async (why: EndReason): Promise<void> => {
      if (reason === 'exited') reason = why;
      await killTree(tree);
    };
    const output = new BoundedOutput(spec.limits.outputBytes, () => void end('output_limit'));
    const [stdout, stderr] = [output.collect(child.stdout), output.collect(child.stderr)];
    const status = new BoundedOutput(65536, () => {}).collect(child.status);
    const deadline = setTimeout(() => void end('timed_out'), spec.limits.seconds * 1000);
    const unwatch = watch(spec, child.pid, cgroup, (excess) => void end(excess));
    const cancel = (): void => void end('cancelled');
    spec.signal.addEventListener('abort', cancel, { once: true });

    const release = (): void => {
      clearTimeout(deadline);
      unwatch();
      spec.signal.removeEventListener('abort', cancel);
    };
    const settle = async (exitCode: number | null, signal: NodeJS.Signals | null): Promise<void> => {
      release();
      await killTree(tree);
      if (!namespaced && spec.uid !== null) await removeLeftFiles(spec.uid);
      await drained([child.stdout, child.stderr, child.status]);
      await namespaceGone(status());
      resolve({ reason, exitCode, signal, stdout: stdout(), stderr: stderr(), status: status() });
    };
    child.process.once('error', (error) => {
      release();
      reject(new SandboxError(`the sandbox could not be started: ${error.message}`, { cause: error }));
    });
    child.process.once('exit', (code, signal) => void settle(code, signal).catch(reject));
  });
  const { status, ...result } = exit;
  const memory = cgroup?.memoryKills() ?? NO_MEMORY_KILLS;
  const wasKilled =
    result.signal === 'SIGKILL' || result.exitCode === SIGKILL_EXIT || (namespaced && !status.includes('exit-code'));
  if (result.reason === 'exited' && wasKilled && memory.oomKills && memory.hitMemoryLimit)
    return { ...result, ...memory, reason: 'out_of_memory', seconds: elapsed() };
  // bubblewrap reports the exit code of a command that it started; nothing else can write there.
  if (namespaced && result.reason === 'exited' && !status.includes('exit-code')) {
    throw new SandboxError(`bubblewrap could not start the sandbox: ${result.stderr.trim().slice(-500)}`);
  }
  return { ...result, ...memory, seconds: elapsed() };
}

/** The exit status that a shell gives a command that SIGKILL ended. */
const SIGKILL_EXIT = 137;

/** Watches the limits that the kernel does not enforce. */
function watch(
  { limits, root, uid, isolation }: ProcessSpec,
  pid: number | undefined,
  cgroup: Cgroup | null,
  onExcess: (excess: Excess) => void,
): () => void {
  if (!pid) return () => {};
  const stops = [watchStorage({ ...limits, root, pid, uid, isolation, onExcess })];
  if (!cgroup) stops.push(watchTree({ ...limits, pid, uid, onExcess }));
  return () => stops.forEach((stop) => stop());
}

type Exit = Omit<ProcessResult, 'seconds' | keyof GatewayFailures | keyof MemoryKills> & { status: string };

function begin(
  { argv, cwd, env, limits, isolation, uid, mounts, marker, network, stdin }: ProcessSpec,
  link: GatewayLink,
  enter: string[],
) {
  const { bwrap, python, kind, seccomp } = isolation;
  const wrapped = kind === 'bubblewrap' && bwrap !== null;
  const inside = { uid, python, mounts: [...mounts, ...link.mounts], cwd, hostNetwork: network.kind === 'host' };
  const filter = wrapped && seccomp ? openSync(seccomp, 'r') : null;
  const input = stdin === undefined ? null : openSync(stdin, 'r');
  const wrap = wrapped
    ? bubblewrapArgv({ bwrap, ...inside, statusFd: 3, ...(filter === null ? {} : { seccompFd: 4 }) })
    : [];
  // The relay is a process of the same user. It does not use up the agent's limit.
  const processes = limits.processes + (link.relay.length > 0 ? 1 : 0);
  const [command = '', ...args] = [
    ...enter,
    ...wrap,
    ...link.relay,
    ...limited(argv, { ...limits, processes }, isolation, uid),
  ];
  const child = spawn(command, args, {
    cwd: wrapped ? '/' : cwd,
    env: { ...env, [MARKER]: marker },
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

/** Reads what was written before the end. It does not wait for a pipe that another process still holds open. */
async function drained(streams: Readable[]): Promise<void> {
  const closed = streams.map(
    (stream) => new Promise<void>((resolve) => void (stream.closed ? resolve() : stream.once('close', resolve))),
  );
  const patience = setTimeout(() => streams.forEach((stream) => stream.destroy()), 500);
  await Promise.all(closed);
  clearTimeout(patience);
}
