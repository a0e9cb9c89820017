import { randomBytes } from 'node:crypto';
import { statSync } from 'node:fs';
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { V1Pod } from '@kubernetes/client-node';
import { TrialgateError } from '../../../core/errors.ts';
import { DEFAULT_POD_IMAGE } from '../../../core/run-config/sandbox.ts';
import type { Command } from '../backend.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import { hostWork, SandboxError } from '../errors.ts';
import type { Isolation } from '../isolation.ts';
import { noteRunning } from '../kill-tree.ts';
import { DESCRIPTORS, type Limits } from '../limits.ts';
import { doorsOf, gatewayAddress } from '../network.ts';
import { openGatewayLink, type GatewayLink, type LinkReport } from '../open-gateway-link.ts';
import { removeTree } from '../remove-tree.ts';
import { drained, judgeMemory, notStarted, supervise, type EndReason, type ProcessResult } from '../run-process.ts';
import type { SandboxPaths } from '../sandbox-paths.ts';
import { startsOfHost } from '../starts.ts';
import { execute, openChannel, type Channel } from './channel.ts';
import type { Cluster, KubernetesSetting } from './cluster.ts';
import { deploymentId, sandboxLabel } from './deployment-id.ts';
import { copyFromPod, copyIntoPod, helperCommand, type Copied } from './files.ts';
import { drawUser, HELPER, LABELS, LAUNCH, podOf, PROGRAM } from './manifests.ts';
import { createPod, deletePod, endOf, podStarted, type End } from './pods.ts';
import { serveTunnel } from './tunnel.ts';

export type Place = { cluster: Cluster; host: Isolation; setting: KubernetesSetting; paths: SandboxPaths };

/** The worker looks for the end of a program after this time, and later more rarely. Its connection ends earlier. */
const POLL_MS = 2000;
const MOST_POLL_MS = 15_000;
/** The worker asks again so long when the API server does not answer, while the connections to the pod hold. */
const TOLERATED_MS = 120_000;
/** A program that is not dead so long after it was killed is ended with its pod. */
const KILL_MS = 30_000;
/** A program that still runs so long after its connection has ended runs unseen. */
const CONNECTION_END_MS = 15_000;
/** The helper unpacks the last files, and looks for some seconds whether the network is closed. */
const HELPER_MS = 60_000;
/** The time in which the files of a sandbox must be in the pod, and the time in which they must be back. */
const COPY_MS = 600_000;
/** One try to kill a program. */
const KILL_TRY_MS = 10_000;

type Result = Omit<ProcessResult, keyof LinkReport>;

/**
 * Runs a command in a pod of its own. The pod gets copies of the sandbox's folders, and they come back when the command has ended.
 * @throws SandboxError when the cluster or the host fails
 */
export async function runPod(place: Place, sandbox: Sandbox, command: Command): Promise<ProcessResult> {
  if (command.signal.aborted) return notStarted();
  const removal = new AbortController();
  const signal = AbortSignal.any([command.signal, removal.signal]);
  const running = runWithLink(place, sandbox, { ...command, signal }, removal.signal);
  const forget = noteRunning(sandbox.marker, async () => {
    removal.abort();
    await running.catch(() => {});
  });
  return running.finally(forget);
}

async function runWithLink(
  place: Place,
  sandbox: Sandbox,
  command: Command,
  removed: AbortSignal,
): Promise<ProcessResult> {
  const { network } = command;
  if (network.kind === 'host')
    throw new TrialgateError(
      'bad_input',
      'sandbox: kubernetes: pods have no open network: name the hosts that the agent needs as a list in `network`',
    );
  // The pod uses only the sockets of the link. The helper leads to them.
  await using link = await openGatewayLink({ python: 'python3', network });
  const result = await runNamed(place, sandbox, command, { link, removed });
  return { ...result, ...(await link.close()) };
}

async function runNamed(
  place: Place,
  sandbox: Sandbox,
  command: Command,
  { link, removed }: Pick<Run, 'link' | 'removed'>,
): Promise<Result> {
  const { cluster, setting } = place;
  const { network } = command;
  const pod = `trialgate-${randomBytes(8).toString('hex')}`;
  const launchFolder = join(sandbox.root, `launch-${pod}`);
  const folders = foldersOf(place, sandbox, command, launchFolder);
  const deployment = await deploymentId(sandbox.home);
  const body = podOf(setting, {
    name: pod,
    labels: { [LABELS.sandbox]: sandboxLabel(deployment, sandbox.marker), [LABELS.home]: deployment },
    sandbox: sandbox.name,
    image: sandbox.image?.id ?? setting.image ?? DEFAULT_POD_IMAGE,
    folders,
    limits: command.limits,
    hostName: network.kind === 'gateway' ? gatewayAddress(network.url).name : null,
    uid: drawUser(setting),
  });
  const started = await startsOfHost()
    .begin(command.signal)
    .catch(() => null);
  if (started === null) return notStarted();
  let isEnded = false;
  try {
    requireFolders(command);
    await writeLaunch(launchFolder, command);
    const onEnd = (): void => void (isEnded = true);
    return await runIn(place, sandbox, command, { pod, body, folders, link, removed, started, onEnd });
  } finally {
    started();
    await removeTree(launchFolder);
    // When this fails the program may still run, so the run fails too.
    await deletePod(cluster, pod, isEnded);
  }
}

/** Returns the folders of a pod: copies of the sandbox's own, of the command's mounts, and of the one with its start. */
export function foldersOf(
  { paths }: Pick<Place, 'paths'>,
  sandbox: Sandbox,
  { mounts }: Command,
  launchFolder: string,
): Copied[] {
  return [
    ...ownFolders(sandbox, paths),
    ...mounts.map((mount, index) => ({ ...mount, name: `mount-${index}` })),
    { name: 'launch', host: launchFolder, inside: LAUNCH, writable: false },
  ];
}

export const ownFolders = ({ work, agentHome, tmp, logs }: Sandbox, paths: SandboxPaths): Copied[] => [
  { name: 'work', host: work, inside: paths.work, writable: true },
  { name: 'home', host: agentHome, inside: paths.home, writable: true },
  { name: 'tmp', host: tmp, inside: paths.tmp, writable: true },
  { name: 'logs', host: logs, inside: paths.logs, writable: true },
];

/** A volume is a folder, so a pod cannot have a file alone. */
function requireFolders({ mounts }: Command): void {
  const file = mounts.find(({ host }) => !statSync(host, { throwIfNoEntry: false })?.isDirectory());
  if (file)
    throw new TrialgateError(
      'bad_input',
      `sandbox: kubernetes: ${file.host} is not a folder, and a pod mounts only folders: put the file into a folder, and name that`,
    );
}

/** Writes the script that the pod's shell becomes: the variables may be secrets, which a pod's description would show. */
async function writeLaunch(folder: string, { argv, cwd, env, limits, stdin }: Command): Promise<void> {
  const script = [
    'ulimit -c 0',
    `ulimit -d ${Math.ceil(limits.memoryMb * 1024)}`,
    `ulimit -f ${Math.ceil(limits.storageMb * 2048)}`,
    // The helper, the first shell and the kill are of the same user.
    `{ ulimit -p ${limits.processes + 8} || ulimit -u ${limits.processes + 8}; } 2>/dev/null`,
    `ulimit -n ${DESCRIPTORS} 2>/dev/null`,
    `cd ${quoted(cwd)} || exit 126`,
    `env -i ${[...Object.entries(env).map(([name, value]) => `${name}=${value}`), ...argv].map(quoted).join(' ')} < ${stdin === undefined ? '/dev/null' : `${LAUNCH}/stdin`}`,
    // Without this line a shell would become the command, and the first process of a container is deaf to signals.
    'exit $?',
  ];
  await hostWork('the start of a pod', async () => {
    await mkdir(folder, { mode: 0o755 });
    await writeFile(join(folder, 'start'), `${script.join('\n')}\n`, { mode: 0o644 });
    if (stdin !== undefined) await copyFile(stdin, join(folder, 'stdin'));
  });
}

const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

type Run = {
  pod: string;
  body: V1Pod;
  folders: Copied[];
  link: GatewayLink;
  /** Aborts when the sandbox is being removed. Its files are then not wanted any more. */
  removed: AbortSignal;
  started: () => void;
  onEnd: () => void;
};

async function runIn(place: Place, sandbox: Sandbox, command: Command, run: Run): Promise<Result> {
  const { cluster, setting } = place;
  const { pod, body, folders, link, removed, started, onEnd } = run;
  const { limits, signal, network } = command;
  try {
    await createPod(cluster, body, signal);
    await podStarted(cluster, pod, signal);
  } catch (error) {
    if (signal.aborted) return notStarted();
    throw error;
  }
  const ports = doorsOf(network).map(({ port }) => port);
  const serve = helperCommand(folders, limits.storageMb, ports);
  const helper = await openChannel(cluster, { pod, container: HELPER, command: serve });
  try {
    const notes = await openTunnel(helper, folders, link, signal).catch((error: unknown) => {
      if (signal.aborted) return null;
      throw error;
    });
    if (notes === null || signal.aborted) return notStarted();
    if (notes.network !== 'ready' && setting.require_network_policy !== false)
      throw new SandboxError(
        `${NETWORK_FAULTS[notes.network]}, or set \`require_network_policy: false\` to run programs on a network that may be open`,
      );
    const program = await openChannel(cluster, { pod, container: PROGRAM });
    try {
      const result = await supervised(place, sandbox, command, { pod, program, notes, started });
      onEnd();
      if (result.isPodGone) return result.result;
      const written = folders.filter(({ writable }) => writable);
      const isBack = await copyBack(place, sandbox, { pod, folders: written, limits, removed });
      return isBack || result.result.reason !== 'exited'
        ? result.result
        : { ...result.result, reason: 'storage_limit' };
    } finally {
      program.close();
    }
  } finally {
    helper.close();
  }
}

/** Brings back what a program wrote, also that of a cancelled one. Returns false when it is too much. */
async function copyBack(
  place: Place,
  sandbox: Sandbox,
  { removed, ...copied }: { pod: string; folders: Copied[]; limits: Limits; removed: AbortSignal },
): Promise<boolean> {
  if (removed.aborted) return true;
  const signal = AbortSignal.any([removed, AbortSignal.timeout(COPY_MS)]);
  try {
    return await copyFromPod(place, sandbox, { ...copied, signal });
  } catch (error) {
    if (removed.aborted) return true;
    if (!signal.aborted) throw error;
    throw new SandboxError(`the files of a pod did not come back within ${COPY_MS / 1000} s`, { cause: error });
  }
}

/** The helper's finding about the pod's network. `open` means that the pod reaches the cluster's API, which its network policy forbids. */
type FoundNetwork = 'ready' | keyof typeof NETWORK_FAULTS;
const NETWORK_FAULTS = {
  open: 'the cluster lets a pod reach its API although the network policy forbids it: install a network plugin that enforces NetworkPolicy',
  unchecked:
    'a pod was not told the address of the cluster’s API (KUBERNETES_SERVICE_HOST), so it is not checked that its network is closed: run pods by a kubelet that sets this variable',
} as const;

type Notes = {
  network: FoundNetwork;
  /** Resolves when the sandbox's disk is full. */
  full: Promise<void>;
  /** Returns the most bytes that the helper has counted in the sandbox; null before its first count. */
  diskBytes: () => number | null;
  /** Rejects when the connection to the helper ends. */
  lost: Promise<never>;
};

/** Gives the helper the pod's files, and returns when it is ready. */
async function openTunnel(helper: Channel, folders: Copied[], link: GatewayLink, signal: AbortSignal): Promise<Notes> {
  const ready = Promise.withResolvers<FoundNetwork>();
  const full = Promise.withResolvers<void>();
  const lost = Promise.withResolvers<never>();
  lost.promise.catch(() => {});
  let errorOutput = '';
  let diskBytes: number | null = null;
  helper.stderr.on('data', (chunk: Buffer) => (errorOutput = `${errorOutput}${chunk.toString()}`.slice(-1000)));
  const sockets = link.mounts.filter(({ inside }) => inside.endsWith('.sock')).map(({ host }) => host);
  const end = (error?: unknown): void => {
    const reason = errorOutput.trim() || (error instanceof Error ? error.message : 'the connection ended');
    const failed = new SandboxError(`the helper of a pod ended: ${reason}`, { cause: error });
    ready.reject(failed);
    lost.reject(failed);
  };
  void serveTunnel(helper, sockets, (note) => {
    const counted = /^disk (\d+)$/.exec(note)?.[1];
    if (counted !== undefined) diskBytes = Math.max(diskBytes ?? 0, Number(counted));
    else if (note === 'storage') full.resolve();
    else ready.resolve(note === 'ready' || note === 'open' ? note : 'unchecked');
  }).then(() => end(), end);
  ready.promise.catch(() => {});
  const abort = (): void => {
    helper.close();
    end(signal.reason);
  };
  signal.addEventListener('abort', abort, { once: true });
  if (signal.aborted) abort();
  const late = AbortSignal.timeout(COPY_MS);
  await copyIntoPod(helper, folders, AbortSignal.any([signal, late])).catch((error: unknown) =>
    end(late.aborted ? new Error(`its files were not there within ${COPY_MS / 1000} s`) : error),
  );
  const timer = setTimeout(
    () => ready.reject(new SandboxError(`the helper of a pod did not start within ${HELPER_MS / 1000} s`)),
    HELPER_MS,
  );
  try {
    return { network: await ready.promise, full: full.promise, lost: lost.promise, diskBytes: () => diskBytes };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', abort);
  }
}

type Started = { pod: string; program: Channel; notes: Notes; started: () => void };

async function supervised(
  { cluster, host }: Place,
  { root }: Sandbox,
  { limits, onOutput, signal }: Command,
  { pod, program, notes, started }: Started,
): Promise<{ result: Result; isPodGone: boolean }> {
  const stop = new AbortController();
  let reason: EndReason | null = null;
  let isPodGone = false;
  const kill = killer(cluster, pod, stop.signal);
  const connections = connectionsOf(program, notes);
  const ended = async (): Promise<End> => {
    const look = tolerant(() => endOf(cluster, pod, kill.isRequested()));
    for (let pause = POLL_MS; ; pause = Math.min(pause * 1.5, MOST_POLL_MS)) {
      const wait = sleep(pause, undefined, { signal: stop.signal }).catch(() => {});
      await Promise.race([connections.end, kill.requested, wait]);
      const end = await look();
      if (end !== undefined) return end;
      connections.throwWhenLate();
      if (kill.hasFailed()) {
        // The files of such a program are lost with its pod.
        await deletePod(cluster, pod);
        return null;
      }
      await sleep(100);
    }
  };
  const endForDisk = (): Promise<void> => {
    reason = 'storage_limit';
    return kill.begin();
  };
  void notes.full.then(endForDisk);
  let end: End = null;
  try {
    await program.write(Buffer.from('\n'));
    started();
    const result = await supervise(
      // The program runs on another host, so this host's table of processes says nothing about it.
      { limits, root, uid: null, isolation: host, signal, ...(onOutput ? { onOutput } : {}) },
      null,
      {
        pid: undefined,
        stdout: program.stdout,
        stderr: program.stderr,
        kill: kill.begin,
        ended: ended().then(async (last) => {
          end = last;
          await Promise.race([program.ended, sleep(5000, undefined, { ref: false })]);
          await drained([program.stdout, program.stderr]);
          return { exitCode: last?.terminated?.exitCode ?? null, signal: null };
        }),
      },
    );
    isPodGone = isPodEnded(end);
    const judged = {
      ...result,
      diskBytes: notes.diskBytes(),
      ...(reason !== null && result.reason === 'exited' ? { reason } : {}),
    };
    return { result: judge(judged, end), isPodGone };
  } finally {
    stop.abort();
  }
}

/** Returns true when the whole pod ended. Its end kills the program, so the program's exit code then says nothing about the program. */
const isPodEnded = (end: End): boolean => end === null || end.podReason !== null || end.terminated === null;

function judge(result: Omit<Result, 'oomKills' | 'hitMemoryLimit'>, end: End): Result {
  const isOut = end?.terminated?.reason === 'OOMKilled';
  if (result.reason === 'exited' && isPodEnded(end)) {
    if (end?.isOverDisk) return { ...result, oomKills: 0, hitMemoryLimit: false, reason: 'storage_limit' };
    throw new SandboxError(`the pod ended before its program: ${end === null ? 'it was deleted' : end.message}`);
  }
  const memory = isOut ? { oomKills: 1, hitMemoryLimit: true } : { oomKills: 0, hitMemoryLimit: false };
  return judgeMemory(result, memory, isOut);
}

/** Returns `look`, which gives undefined when it fails, and fails itself only when nothing else has happened for too long. */
function tolerant<T>(look: () => Promise<T>): () => Promise<T | undefined> {
  let failedAt: number | null = null;
  return async () => {
    try {
      const seen = await look();
      failedAt = null;
      return seen;
    } catch (error) {
      failedAt ??= performance.now();
      if (performance.now() - failedAt > TOLERATED_MS) throw error;
      return undefined;
    }
  };
}

/** The connections to a pod end with its containers, and a little before the API server knows of their end. */
function connectionsOf(program: Channel, notes: Notes) {
  let since: number | null = null;
  const ended = Promise.race([program.ended, notes.lost.catch(() => {})]).then(() => (since = performance.now()));
  return {
    end: ended,
    throwWhenLate: () => {
      if (since !== null && performance.now() - since > CONNECTION_END_MS)
        throw new SandboxError('the connection to a pod ended while its program ran: what it prints is lost');
    },
  };
}

/** Kills all processes of a program but the first, which then ends by itself. */
function killer(cluster: Cluster, pod: string, stopped: AbortSignal) {
  const requested = Promise.withResolvers<void>();
  let since: number | null = null;
  const command = ['/bin/sh', '-c', 'kill -KILL -1'];
  const begin = async (): Promise<void> => {
    if (since !== null) return;
    since = performance.now();
    requested.resolve();
    for (; !stopped.aborted; await sleep(1000, undefined, { ref: false }))
      await execute(
        cluster,
        { pod, container: PROGRAM, command },
        AbortSignal.any([stopped, AbortSignal.timeout(KILL_TRY_MS)]),
      ).catch(() => {});
  };
  return {
    begin,
    requested: requested.promise,
    isRequested: () => since !== null,
    /** True when the program still runs long after it was killed. */
    hasFailed: () => since !== null && performance.now() - since > KILL_MS,
  };
}
