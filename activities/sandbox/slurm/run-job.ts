import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import type { SandboxSetting } from '../../../core/run-config/sandbox.ts';
import type { Command } from '../backend.ts';
import { BoundedOutput } from '../bounded-output.ts';
import { bubblewrapArgv, type Mount } from '../bubblewrap.ts';
import { NO_MEMORY_KILLS, type MemoryKills } from '../cgroup.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import { hostWork, SandboxError } from '../errors.ts';
import type { Isolation } from '../isolation.ts';
import { noteRunning } from '../kill-tree.ts';
import { limited } from '../limits.ts';
import { openGatewayLink, type GatewayLink, type LinkReport } from '../open-gateway-link.ts';
import { drained, environmentOf, judgeMemory, notStarted, supervise, type ProcessResult } from '../run-process.ts';
import { sandboxUser } from '../sandbox-user.ts';
import type { Cluster } from './cluster.ts';
import { openTunnel, type Tunnel } from './tunnel.ts';

const NODE_PROGRAM = fileURLToPath(new URL('./node.py', import.meta.url));
/** The memory of `node.py` and bubblewrap, which are in the job beside the sandbox's process. */
const OWN_MB = 32;
/** SLURM ends a job only when the worker has failed to. */
const SPARE_MINUTES = 2;
/** After this time, an `srun` that was told to end is killed. */
const PATIENCE_MS = 3000;
/** Descriptors that nothing else in `node.py` has. */
const DESCRIPTORS = { statusFd: 100, seccompFd: 101 };

export type Place = {
  cluster: Cluster;
  host: Isolation & { bwrap: string };
  setting: Extract<SandboxSetting, { kind: 'slurm' }>;
  /** The mounts of the sandbox's own folders. */
  own: Mount[];
};

/** The beginning of the names of a sandbox's jobs. */
export const jobPrefix = (marker: string): string => `trialgate:${marker}:`;

export const isSocket = ({ inside }: Mount): boolean => inside.endsWith('.sock');
/** Returns the name of the socket that `node.py` makes in the sandbox's folder for one that the sandbox has. */
export const nodeSocket = ({ inside }: Mount): string => `node-${basename(inside)}`;

/** What `node.py` writes when the process has ended. */
const report = z.object({
  /** Null when bubblewrap could not start the process. */
  exitCode: z.int().nullable(),
  relayStarted: z.boolean(),
});
type Report = z.output<typeof report>;

/**
 * Runs a command as a job of its own, under bubblewrap on one of the cluster's nodes. The time in SLURM's queue does not count.
 * @throws SandboxError when SLURM or the node fails
 */
export async function runJob(place: Place, sandbox: Sandbox, command: Command): Promise<ProcessResult> {
  if (command.signal.aborted) return notStarted();
  const removal = new AbortController();
  const signal = AbortSignal.any([command.signal, removal.signal]);
  const running = runWithLink(place, sandbox, { ...command, signal });
  const forget = noteRunning(sandbox.marker, async () => {
    removal.abort();
    await running.catch(() => {});
  });
  return running.finally(forget);
}

async function runWithLink(place: Place, sandbox: Sandbox, command: Command): Promise<ProcessResult> {
  await using link = await openGatewayLink({ python: place.host.python.executable, network: command.network });
  await using tunnels = new AsyncDisposableStack();
  const id = randomBytes(6).toString('hex');
  const name = `${jobPrefix(sandbox.marker)}${id}`;
  const files = { job: join(sandbox.root, `job-${id}.json`), result: join(sandbox.root, `job-${id}.result`) };
  const sign = randomBytes(16).toString('hex');
  const ways: Way[] = [];
  for (const mount of link.mounts.filter(isSocket)) {
    const tunnel = await hostWork('opening a port for the nodes', () => openTunnel(mount.host));
    ways.push({ mount, tunnel: tunnels.use(tunnel), socket: nodeSocket(mount) });
  }
  try {
    const job = jobOf(place, sandbox, command, link, ways);
    await hostWork("writing the job's files", async () => {
      await writeFile(files.result, '', { mode: 0o600 });
      await writeFile(files.job, JSON.stringify({ ...job, sign, result: files.result }), { mode: 0o600 });
    });
    const result = await runNamed(place, sandbox, command, { name, sign, files });
    return { ...result, ...(await link.close()) };
  } finally {
    const sockets = ways.map(({ socket }) => join(sandbox.root, socket));
    for (const file of [...Object.values(files), ...sockets]) await rm(file, { force: true });
  }
}

/** A socket of the sandbox, the tunnel behind it, and the name of the socket that `node.py` makes in the sandbox's folder. */
type Way = { mount: Mount; tunnel: Tunnel; socket: string };

/** Returns what `node.py` reads, without what names this run. */
function jobOf(
  { host, own }: Place,
  sandbox: Sandbox,
  { argv, cwd, env, limits, mounts, network }: Command,
  link: GatewayLink,
  ways: Way[],
) {
  const uid = sandboxUser(host, sandbox);
  // The sandbox has the sockets of `node.py` in place of the worker's, which a node cannot reach.
  const linked = link.mounts.map((mount) => {
    const way = ways.find((one) => one.mount === mount);
    return way ? { ...mount, host: join(sandbox.root, way.socket) } : mount;
  });
  const wrap = bubblewrapArgv({
    bwrap: host.bwrap,
    uid,
    python: host.python,
    mounts: [...own, ...mounts, ...linked],
    cwd,
    hostNetwork: network.kind === 'host',
    statusFd: DESCRIPTORS.statusFd,
    ...(host.seccomp === null ? {} : { seccompFd: DESCRIPTORS.seccompFd }),
  });
  const processes = limits.processes + link.relayProcesses;
  return {
    argv: [...wrap, ...link.relay, ...limited(argv, { ...limits, processes }, host, uid)],
    env: environmentOf({ env, marker: sandbox.marker }),
    seccomp: host.seccomp,
    ...DESCRIPTORS,
    tunnels: ways.map(({ tunnel: { port, token }, socket }) => ({ port, token, socket })),
  };
}

type Named = { name: string; sign: string; files: { job: string; result: string } };

async function runNamed(
  place: Place,
  { root }: Sandbox,
  command: Command,
  { name, sign, files }: Named,
): Promise<Omit<ProcessResult, keyof LinkReport>> {
  const { cluster, host } = place;
  const { limits, onOutput, signal } = command;
  const srun = startSrun(place, command, name, files.job);
  const { stdout, stderr } = srun;
  let isKilled = false;
  const kill = async (): Promise<void> => {
    if (isKilled) return;
    isKilled = true;
    for (const [index, one] of (['SIGTERM', 'SIGKILL'] as const).entries())
      setTimeout(() => srun.end(one), PATIENCE_MS * (index + 1)).unref();
    // SLURM may not know the job yet.
    for (; srun.isRunning(); await sleep(100)) await cluster.end(name).catch(() => {});
  };
  /** Resolves when `srun` has ended, and after a kill also the job. */
  const ended = srun.exited.then(async (exitCode) => {
    if (isKilled || exitCode === null) await cluster.end(name);
    return exitCode;
  });
  ended.catch(() => {});
  const cancel = (): void => void kill();
  signal.addEventListener('abort', cancel, { once: true });
  if (signal.aborted) cancel();
  try {
    if (!(await startedIn(stdout, sign))) {
      const said = new BoundedOutput(65536, () => {}).collect(stderr);
      const exitCode = await ended;
      if (signal.aborted) return notStarted();
      await drained([stderr]);
      throw failure('could not start', said(), exitCode, await cluster.stateOf(name));
    }
    const result = await supervise(
      // The process may run on another host, so this host's table of processes says nothing about it.
      { limits, root, uid: null, isolation: host, signal, ...(onOutput ? { onOutput } : {}) },
      null,
      {
        pid: -1,
        stdout,
        stderr,
        kill,
        ended: ended.then(async (exitCode) => {
          await drained([stdout, stderr]);
          return { exitCode, signal: null };
        }),
      },
    );
    if (result.reason !== 'exited') return { ...result, exitCode: null, ...NO_MEMORY_KILLS };
    return judge(result, await readReport(files.result), result.exitCode === 0 ? null : await cluster.stateOf(name));
  } finally {
    signal.removeEventListener('abort', cancel);
    if (srun.isRunning()) {
      await kill();
      await ended.catch(() => {});
    }
  }
}

type Ended = Omit<ProcessResult, keyof LinkReport | keyof MemoryKills>;

/** `result` is that of `srun`, which fails when the job was killed or its output was lost. Then `state` is what SLURM says about the job. */
function judge(result: Ended, reported: Report | null, state: string | null): Omit<ProcessResult, keyof LinkReport> {
  const isOut = state === 'OUT_OF_MEMORY';
  const memory: MemoryKills = isOut ? { oomKills: 1, hitMemoryLimit: true } : NO_MEMORY_KILLS;
  const exitCode = reported?.exitCode ?? null;
  if (isOut && exitCode === null) return { ...result, ...memory, exitCode, reason: 'out_of_memory' };
  if (state === 'TIMEOUT') return { ...result, ...memory, exitCode: null, reason: 'timed_out' };
  if (reported === null || (result.exitCode !== 0 && !isOut))
    throw failure('ended', result.stderr, result.exitCode, state);
  const said = result.stderr.trim().slice(-500);
  if (exitCode === null) throw new SandboxError(`bubblewrap could not start the sandbox: ${said}`);
  if (!reported.relayStarted) throw new SandboxError(`the sandbox's relay to the gateway could not start: ${said}`);
  return judgeMemory({ ...result, exitCode }, memory, false);
}

function failure(
  what: 'could not start' | 'ended',
  said: string,
  exitCode: number | null,
  state: string | null,
): SandboxError {
  const reason = said.trim().slice(-700) || `srun ended with ${exitCode}`;
  return new SandboxError(`SLURM ${what} the job${state === null ? '' : ` (${state})`}: ${reason}`);
}

async function readReport(file: string): Promise<Report | null> {
  try {
    return report.parse(JSON.parse(await readFile(file, 'utf8')));
  } catch {
    // `node.py` was ended before it could write.
    return null;
  }
}

type Srun = {
  stdout: Readable;
  stderr: Readable;
  /** Resolves with the exit code; null when a signal ended it. */
  exited: Promise<number | null>;
  isRunning: () => boolean;
  end: (signal: NodeJS.Signals) => void;
};

function startSrun({ cluster, host, setting }: Place, { limits, stdin }: Command, name: string, job: string): Srun {
  const { partition, account, options = [] } = setting;
  const args = [
    ...options,
    ...(partition === undefined ? [] : [`--partition=${partition}`]),
    ...(account === undefined ? [] : [`--account=${account}`]),
    ...['--quiet', '--nodes=1', '--ntasks=1', '--mpi=none', '--export=NONE', '--propagate=NONE', '--chdir=/'],
    `--job-name=${name}`,
    `--mem=${Math.ceil(limits.memoryMb) + OWN_MB}`,
    `--cpus-per-task=${Math.max(1, Math.ceil(limits.cpus))}`,
    `--time=${Math.ceil(limits.seconds / 60) + SPARE_MINUTES}`,
    ...(stdin === undefined ? ['--input=none'] : []),
    ...[host.python.executable, '-I', '-S', '-B', NODE_PROGRAM, job],
  ];
  const input = stdin === undefined ? null : openSync(stdin, 'r');
  // When its worker dies, srun is told to end, and ends the job.
  const child = spawn('setpriv', ['--pdeathsig', 'TERM', cluster.srun, ...args], {
    cwd: '/',
    env: cluster.env,
    stdio: [input ?? 'ignore', 'pipe', 'pipe'],
    detached: true,
  });
  if (input !== null) closeSync(input);
  const { stdout, stderr } = child;
  if (!stdout || !stderr) throw new SandboxError('srun has no output pipes');
  const exited = new Promise<number | null>((resolve, reject) => {
    child.once('error', (error) => reject(new SandboxError(`srun could not be started: ${error.message}`)));
    child.once('exit', (exitCode) => resolve(exitCode));
  });
  exited.catch(() => {});
  const isRunning = (): boolean => child.pid !== undefined && child.exitCode === null && child.signalCode === null;
  const end = (signal: NodeJS.Signals): void => void (isRunning() && child.kill(signal));
  return { stdout, stderr, exited, isRunning, end };
}

/** Reads until `node.py` has printed its sign, and drops what came before: a cluster's own scripts may print. False: it ended first. */
function startedIn(stdout: Readable, sign: string): Promise<boolean> {
  const line = `${sign}\n`;
  let seen = Buffer.alloc(0);
  return new Promise((resolve) => {
    const finish = (isStarted: boolean): void => {
      stdout.off('readable', look).off('end', fail).off('close', fail);
      resolve(isStarted);
    };
    const fail = (): void => finish(false);
    const look = (): void => {
      for (let chunk: unknown = stdout.read(); Buffer.isBuffer(chunk); chunk = stdout.read()) {
        seen = Buffer.concat([seen, chunk]);
        const at = seen.indexOf(line);
        if (at < 0) continue;
        const rest = seen.subarray(at + line.length);
        if (rest.length > 0) stdout.unshift(rest);
        return finish(true);
      }
    };
    stdout.on('readable', look).once('end', fail).once('close', fail);
  });
}
