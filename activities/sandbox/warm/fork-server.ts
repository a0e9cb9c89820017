import { randomUUID } from 'node:crypto';
import { chmod, chown, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { availableParallelism, totalmem } from 'node:os';
import { basename, join } from 'node:path';
import { readFileSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { listPids, readProcessStat } from '../../../core/process-stat.ts';
import type { Mount } from '../bubblewrap.ts';
import { NO_MEMORY_KILLS, openCgroup } from '../cgroup.ts';
import { handOver, type Sandbox } from '../empty-sandbox.ts';
import { hostWork, SandboxError } from '../errors.ts';
import { errorLine } from '../error-line.ts';
import { MARKER } from '../kill-tree.ts';
import { coresFor, LONGEST_SECONDS, resourceLimits, type Limits } from '../limits.ts';
import { listenIn } from '../listen-in.ts';
import { doorsOf, EGRESS_SOCKET, GATEWAY_SOCKET } from '../network.ts';
import { openGatewayLink } from '../open-gateway-link.ts';
import { processesWith, processTable } from '../process-table.ts';
import {
  drained,
  judgeMemory,
  notStarted,
  runProcess,
  supervise,
  type ProcessResult,
  type ProcessSpec,
} from '../run-process.ts';
import { ownMounts, pathsOf } from '../sandbox-paths.ts';
import { sandboxUser } from '../sandbox-user.ts';
import { openServerSandbox } from '../server-sandbox.ts';
import { EXTRA_PROCESSES } from '../tree-watch.ts';

/** A Python program that can be prepared once and called for each trial: its module has `prepare(*arguments)`, which returns the call. */
export type ForkServerSpec = {
  /** The deployment's folder. */
  home: string;
  /** The command that a trial without the server has: `[python, -B, program, ...arguments]`. */
  argv: string[];
  /** The environment of the server. The other variables of a process are its trial's own. */
  env: Record<string, string>;
  /** The mounts that all trials have besides the folders of their own. */
  mounts: Mount[];
};

export type WarmProcessSpec = ProcessSpec & { forkServer: ForkServerSpec };

const fromServer = z.union([
  z.object({ ready: z.literal(true), pid: z.int() }),
  z.object({ started: z.string(), pid: z.int() }),
  z.object({ ended: z.string(), exit: z.int() }),
  z.object({ ended: z.string(), signal: z.literal(true) }),
  z.object({ ended: z.string(), fault: z.string() }),
  z.object({ fault: z.string() }),
]);
type End = { exitCode: number | null; signal: NodeJS.Signals | null };

const pathOf = (file: string): string => fileURLToPath(new URL(file, import.meta.url));
const [SCRIPT, RELAY] = [pathOf('./fork_server.py'), pathOf('../relay.py')];
const SOCKET = 'server.sock';
const TRIALS = 'trials';
const NO_WAY = 'no-way-out';
/** The file of a trial's folder that has its environment and limits. */
const TRIAL = 'trial.json';
const INSIDE = {
  script: '/run/trialgate/fork_server.py',
  relay: '/run/trialgate/relay.py',
  socket: '/run/trialgate/server.sock',
  filter: '/run/trialgate/seccomp.bpf',
  ways: [GATEWAY_SOCKET, EGRESS_SOCKET].map((name) => `/run/trialgate/${name}`),
  trials: '/trials',
};
/** The most time that a module has for its import. */
const START_SECONDS = 300;
/** A server that does not end a trial within this time is ended itself. */
const KILL_MS = 5000;
/** The processes of a trial that are not the agent's: its first process, which reports its end, and its relays. */
const ownProcesses = ({ network }: WarmProcessSpec): number => 1 + doorsOf(network).length;

/**
 * One process that has imported the module of a function agent (`fork_server.py`), in a sandbox of its own. Each trial is a fork of it. A
 * trial's folder is moved into that sandbox while it runs.
 */
export class ForkServer {
  readonly #sandbox: Sandbox;
  readonly #trials: string;
  readonly #started = new Map<string, (pid: number) => void>();
  readonly #ended = new Map<string, PromiseWithResolvers<End>>();
  /** The trials whose folders are in the server's sandbox. */
  readonly #running = new Set<Promise<ProcessResult>>();
  readonly #stop = new AbortController();
  #socket: Socket | null = null;
  /** The server's id on this host. */
  #pid = 0;
  #isOver = false;
  /** Resolves when the server has ended and its folder is removed. */
  ended: Promise<void> = Promise.resolve();

  private constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
    this.#trials = join(sandbox.root, TRIALS);
  }

  /**
   * Starts a server for the trials whose specs differ only in their folders, environment and limits. An abort ends it while it starts.
   * @throws ForkServerError when the module cannot be imported, reads its trial's variables meanwhile, or the machine allows no
   *   namespaces; SandboxError when the host failed
   */
  static async start(spec: WarmProcessSpec, signal: AbortSignal): Promise<ForkServer> {
    const ready = Promise.withResolvers<number>();
    ready.promise.catch(() => {});
    const opened = await openServerSandbox({
      home: spec.forkServer.home,
      name: `fork-server-${randomUUID().slice(0, 8)}.1`,
      socket: SOCKET,
      isolation: spec.isolation,
      prepare: async ({ root }) => {
        await mkdir(join(root, TRIALS), { mode: 0o711 });
        await writeFile(join(root, NO_WAY), '');
      },
      onMessage: (message, socket) => server.#receive(message, socket, ready),
    });
    const server = new ForkServer(opened.sandbox);
    server.ended = server.#runToEnd(spec, async (why) => {
      ready.reject(why);
      await opened.remove();
    });
    // A trial that imports the module itself has no more time.
    const seconds = Math.min(START_SECONDS, spec.limits.seconds);
    const deadline = setTimeout(() => {
      ready.reject(new ForkServerError(`its import takes longer than ${seconds} s`));
      server.close();
    }, seconds * 1000);
    const abort = (): void => server.close();
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
    try {
      const pid = hostPidOfServer(await ready.promise, server.#sandbox.marker);
      if (pid === null) throw new ForkServerError('its process ended');
      server.#pid = pid;
      return server;
    } catch (error) {
      server.close();
      await server.ended;
      throw error;
    } finally {
      clearTimeout(deadline);
      signal.removeEventListener('abort', abort);
    }
  }

  /** True when the server takes no more trials. */
  get isOver(): boolean {
    return this.#isOver || this.#stop.signal.aborted;
  }

  /** Ends the server and its trials. `ended` resolves afterwards. */
  close(): void {
    this.#stop.abort();
  }

  /**
   * Runs one trial to its end within its limits. When it returns, all its processes are dead.
   * @throws SandboxError when the trial could not be started
   */
  async runTrial(spec: WarmProcessSpec): Promise<ProcessResult> {
    const running = this.#runTrial(spec).finally(() => this.#running.delete(running));
    this.#running.add(running);
    return running;
  }

  async #runTrial(spec: WarmProcessSpec): Promise<ProcessResult> {
    // Each fork knows the ids of the others, so an id says nothing about its trial.
    const id = randomUUID();
    const root = join(this.#trials, id);
    return hostWork(`sandbox ${basename(spec.root)}`, async () => {
      await rename(spec.root, root);
      try {
        await handOver(root, this.#sandbox.uid);
        return await this.#runIn({ ...spec, root, uid: null }, id);
      } finally {
        // The files stay the server's user's: nothing runs as the sandbox's own user afterwards, and what a model left is not walked here.
        await rename(root, spec.root);
      }
    });
  }

  async #runIn(spec: WarmProcessSpec, id: string): Promise<ProcessResult> {
    const { isolation, limits, root } = spec;
    const network = 'folder' in spec.network ? { ...spec.network, folder: root } : spec.network;
    await using stack = new AsyncDisposableStack();
    const link = stack.use(await openGatewayLink({ python: isolation.python.executable, network }));
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    for (const [socket, stream] of [
      ['stdout.sock', stdout],
      ['stderr.sock', stderr],
    ] as const) {
      const listener = createServer((connection) => connection.on('error', () => {}).pipe(stream));
      stack.defer(await listenIn(listener, root, socket));
      await chmod(join(root, socket), 0o666);
    }
    await this.#writeTrial(spec);
    stack.defer(() => rm(join(root, TRIAL), { force: true }));
    const end = Promise.withResolvers<End>();
    end.promise.catch(() => {});
    this.#ended.set(id, end);
    stack.defer(() => void this.#ended.delete(id));
    if (this.isOver) throw new SandboxError('its fork server ended');
    const pid = await this.#fork(id, spec.signal);
    if (pid === null) return notStarted();
    const cgroup =
      isolation.cgroup &&
      openCgroup(isolation.cgroup, { ...limits, processes: limits.processes + ownProcesses(spec) + EXTRA_PROCESSES });
    if (cgroup) stack.defer(() => cgroup.remove());
    cgroup?.join(pid);
    const supervised = supervise({ ...spec, limits: cgroup ? limits : this.#withSharedMemory(spec) }, cgroup, {
      pid,
      stdout,
      stderr,
      kill: async () => this.#kill(id),
      ended: end.promise.then(async (exit) => {
        await drained([stdout, stderr]);
        return exit;
      }),
    });
    this.#tell({ go: id });
    const result = judgeMemory(await supervised, cgroup?.memoryKills() ?? NO_MEMORY_KILLS, false);
    if (result.reason === 'exited' && !(await link.relayStarted()))
      throw new SandboxError(`the sandbox's relay to the gateway could not start: ${result.stderr.trim().slice(-500)}`);
    return { ...result, ...(await link.close()) };
  }

  /** Writes what the fork alone reads. */
  async #writeTrial(spec: WarmProcessSpec): Promise<void> {
    const { root, cwd, env, limits, marker } = spec;
    const trial = {
      cwd,
      env: { ...env, [MARKER]: marker },
      limits: resourceLimits({ ...limits, processes: limits.processes + 1 + ownProcesses(spec) }),
      cores: coresFor(limits.cpus),
    };
    const file = join(root, TRIAL);
    await writeFile(file, JSON.stringify(trial), { mode: 0o600 });
    const { uid } = this.#sandbox;
    if (uid !== null) await chown(file, uid, uid);
  }

  /** Makes the fork, which waits. Returns its id on the host, or null when the trial was cancelled. */
  async #fork(id: string, signal: AbortSignal): Promise<number | null> {
    const started = new Promise<number>((resolve) => this.#started.set(id, resolve));
    const cancel = (): void => this.#kill(id);
    signal.addEventListener('abort', cancel, { once: true });
    try {
      this.#tell({ start: id });
      if (signal.aborted) cancel();
      // The end comes first where the fork failed.
      const inside = await Promise.race([started, this.#ended.get(id)?.promise.then(() => null)]);
      if (signal.aborted) return null;
      const pid = typeof inside === 'number' ? hostPidOfChild(inside, this.#pid) : null;
      if (pid === null) throw new SandboxError('its fork server ended');
      return pid;
    } finally {
      signal.removeEventListener('abort', cancel);
      this.#started.delete(id);
    }
  }

  /** Ends a trial, and the server if it does not do that. */
  #kill(id: string): void {
    this.#tell({ kill: id });
    setTimeout(() => {
      if (this.#ended.has(id)) this.close();
    }, KILL_MS).unref();
  }

  /** Adds the memory that the trial's own processes share with the server. Where there are no control groups, it is counted once for each. */
  #withSharedMemory(spec: WarmProcessSpec): Limits {
    const { limits } = spec;
    const shared = processTable().find(({ pid }) => pid === this.#pid)?.rssBytes ?? 0;
    return { ...limits, memoryMb: limits.memoryMb + ((ownProcesses(spec) + 1) * shared) / 2 ** 20 };
  }

  /** Runs the server and its trials to their end, and removes its sandbox. */
  async #runToEnd(spec: WarmProcessSpec, onEnd: (why: Error) => Promise<void>): Promise<void> {
    const why = await this.#run(spec);
    this.#isOver = true;
    // The host's evidence tells whether the machine or the trial is at fault.
    for (const { resolve } of this.#ended.values()) resolve({ exitCode: null, signal: 'SIGKILL' });
    await Promise.allSettled(this.#running);
    await onEnd(why);
  }

  /** Runs the server, and returns why it ended. */
  async #run(spec: WarmProcessSpec): Promise<Error> {
    try {
      const { reason, exitCode, signal, stderr } = await runProcess(this.#spec(spec));
      const how = reason === 'exited' ? (signal ?? `exit code ${exitCode}`) : reason;
      return new ForkServerError(`its process ended (${how})${stderr ? `: ${errorLine(stderr)}` : ''}`);
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  #spec({ forkServer, isolation, network, env, limits }: WarmProcessSpec): ProcessSpec {
    const sandbox = this.#sandbox;
    const paths = pathsOf(sandbox, isolation);
    const readOnly = (host: string, inside: string): Mount => ({ host, inside, writable: false });
    const [python = '', option = '', ...command] = forkServer.argv;
    const folders = { work: paths.work, home: paths.home, tmp: paths.tmp, shm: '/dev/shm', logs: paths.logs };
    const settings = {
      socket: INSIDE.socket,
      relay: INSIDE.relay,
      filter: isolation.seccomp && INSIDE.filter,
      folders,
      // A trial's own folder would hide these mounts.
      covered: forkServer.mounts
        .map(({ inside }) => inside)
        .filter((path) => Object.values(folders).some((folder) => path.startsWith(`${folder}/`))),
      doors: doorsOf(network),
      host_network: network.kind === 'host',
      command,
      trial_variables: Object.keys(env).filter((name) => env[name] !== forkServer.env[name]),
    };
    return {
      argv: [python, option, INSIDE.script, JSON.stringify(settings)],
      cwd: paths.work,
      env: forkServer.env,
      // The trials' own limits are below these.
      limits: {
        seconds: LONGEST_SECONDS,
        memoryMb: totalmem() / 2 ** 20,
        outputBytes: limits.outputBytes,
        processes: 32_768,
        cpus: availableParallelism(),
        storageMb: 2 ** 20,
      },
      isolation,
      canNest: true,
      uid: sandboxUser(isolation, sandbox),
      mounts: [
        ...ownMounts(sandbox, paths),
        { host: this.#trials, inside: INSIDE.trials, writable: true },
        readOnly(SCRIPT, INSIDE.script),
        readOnly(RELAY, INSIDE.relay),
        readOnly(join(sandbox.root, SOCKET), INSIDE.socket),
        ...INSIDE.ways.map((way) => readOnly(join(sandbox.root, NO_WAY), way)),
        ...(isolation.seccomp ? [readOnly(isolation.seccomp, INSIDE.filter)] : []),
        ...forkServer.mounts,
      ],
      // An import needs no gateway.
      network: network.kind === 'host' ? network : { kind: 'none' },
      marker: sandbox.marker,
      root: sandbox.root,
      signal: this.#stop.signal,
    };
  }

  #tell(message: object): void {
    this.#socket?.write(`${JSON.stringify(message)}\n`);
  }

  #receive(message: unknown, socket: Socket, ready: PromiseWithResolvers<number>): void {
    this.#socket = socket;
    const { data } = fromServer.safeParse(message);
    if (!data) return;
    if ('ready' in data) ready.resolve(data.pid);
    else if ('started' in data) this.#started.get(data.started)?.(data.pid);
    else if (!('ended' in data)) ready.reject(new ForkServerError(data.fault));
    else if ('fault' in data) this.#ended.get(data.ended)?.reject(new SandboxError(data.fault));
    else
      this.#ended
        .get(data.ended)
        ?.resolve('exit' in data ? { exitCode: data.exit, signal: null } : { exitCode: null, signal: 'SIGKILL' });
  }
}

/** Thrown when the trials of an agent cannot be forks. They can still be processes that import the module themselves. */
export class ForkServerError extends Error {
  override readonly name = 'ForkServerError';
}

/** Returns the ids of a process: the first on this host, the last in the innermost namespace. */
function namespaceIds(pid: number): number[] {
  try {
    const ids = /^NSpid:\s*(.*)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';
    return ids.split(/\s+/).map(Number);
  } catch {
    return [];
  }
}

/** Returns the id on this host of the server with the id `inside`, or null when it has ended. bubblewrap's processes have its marker too, and are not as deep. */
function hostPidOfServer(inside: number, marker: string): number | null {
  const found = processesWith(`${MARKER}=${marker}`).map((pid) => ({ pid, ids: namespaceIds(pid) }));
  const depth = Math.max(...found.map(({ ids }) => ids.length));
  return found.find(({ ids }) => ids.length === depth && ids.at(-1) === inside)?.pid ?? null;
}

/** Returns the id on this host of the server's fork with the id `inside`, or null when it has ended. */
const hostPidOfChild = (inside: number, server: number): number | null =>
  listPids().find((pid) => readProcessStat(pid)?.parent === server && namespaceIds(pid).at(-1) === inside) ?? null;
