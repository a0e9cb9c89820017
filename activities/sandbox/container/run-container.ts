import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough, Readable, Stream } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Container, ContainerCreateOptions } from 'dockerode';
import type { Command } from '../backend.ts';
import { BoundedOutput } from '../bounded-output.ts';
import type { Mount } from '../bubblewrap.ts';
import { memoryKillsIn, NO_MEMORY_KILLS, type MemoryKills } from '../cgroup.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import { SandboxError } from '../errors.ts';
import type { Isolation } from '../isolation.ts';
import { noteRunning } from '../kill-tree.ts';
import { DESCRIPTORS } from '../limits.ts';
import type { Network } from '../network.ts';
import { openGatewayLink, type GatewayLink, type LinkReport } from '../open-gateway-link.ts';
import { drained, judgeMemory, notStarted, supervise, type ProcessResult } from '../run-process.ts';
import { startsOfHost } from '../starts.ts';
import { limitsInView, networkInView, visibleMounts, type OwnFiles, type View } from '../view.ts';
import { answered, messageOf, statusOf, type Engine } from './engine.ts';
import { forgetHostImage, hostImage, hostMounts } from './host-image.ts';

/** The labels by which the containers of a sandbox are found. */
export const LABELS = {
  sandbox: 'trialgate.sandbox',
  home: 'trialgate.home',
  name: 'trialgate.name',
  /** `relay` or `program`. */
  role: 'trialgate.role',
} as const;

/** The relay starts in some tenths of a second; the engine may be busy. */
const RELAY_MS = 30_000;
/** A killed container that has not ended after this time is the engine's failure. */
const KILL_MS = 30_000;
/** Another removal of the same container may be under way, and the engine refuses a second one meanwhile. */
const REMOVAL_MS = 10_000;
const MEMORY_POLL_MS = 50;
/** The path, inside a container, of the file that becomes its standard input. */
const STDIN = '/run/trialgate-stdin';
/** The exit status that a shell gives a command that does not exist. */
const NOT_FOUND = 127;

export type Place = {
  engine: Engine;
  host: Isolation;
  runtime: string | undefined;
  labels: Record<string, string>;
  /** The mounts of the sandbox's own folders. */
  own: Mount[];
};

/**
 * Runs a command in a container of its own, with a read-only root, no capability, no new privileges, the engine's filter of system calls and a
 * user that is not root. Its network is that of a second container, whose only process is the relay to the gateway.
 * @throws SandboxError when the engine fails
 */
export async function runContainer(place: Place, sandbox: Sandbox, command: Command): Promise<ProcessResult> {
  const ending = new AbortController();
  const signal = AbortSignal.any([command.signal, ending.signal]);
  const running = begun(place, sandbox, { ...command, signal });
  const forget = noteRunning(sandbox.marker, async () => {
    ending.abort();
    await running.catch(ignore);
  });
  try {
    return await running;
  } finally {
    forget();
  }
}

async function begun(place: Place, sandbox: Sandbox, command: Command): Promise<ProcessResult> {
  const started = await startsOfHost()
    .begin(command.signal)
    .catch(() => null);
  if (started === null) return notStarted();
  try {
    return await runInTurn(place, sandbox, command, started);
  } finally {
    started();
  }
}

/** Runs a command, and calls `started` when its container runs. The engine answers each request within a time, or the start fails. */
async function runInTurn(
  place: Place,
  sandbox: Sandbox,
  command: Command,
  started: () => void,
): Promise<ProcessResult> {
  await using way = (await takeAhead(sandbox, command.network)) ?? (await openWay(place, sandbox, command));
  if (command.signal.aborted) return notStarted();
  const result = await runIn(place, sandbox, command, {
    mode: way.relay === null ? command.network.kind : `container:${way.relay.id}`,
    mounts: containerMounts(place, sandbox, command, way.link),
    started,
  });
  return { ...result, ...(await way.link.close()) };
}

/** The way out of a sandbox: the host's end of it, and the relay's container; null where none is needed. */
type Way = AsyncDisposable & { link: GatewayLink; relay: Container | null };

async function openWay(
  place: Place,
  sandbox: Sandbox,
  { network, signal }: Pick<Command, 'network' | 'signal'>,
): Promise<Way> {
  const { host, engine } = place;
  await using opened = new AsyncDisposableStack();
  const link = opened.use(await openGatewayLink({ python: host.python.executable, network }));
  const relay = link.relay.length > 0 && !signal.aborted ? await startRelay(place, sandbox, link, signal) : null;
  // The relay is no program of the sandbox. If it is left, `destroy` finds it.
  if (relay)
    opened.defer(() => removed(relay).catch((error: unknown) => console.error(`${engine.name}: ${messageOf(error)}`)));
  const all = opened.move();
  return { link, relay, [Symbol.asyncDispose]: () => all.disposeAsync() };
}

/** The ways out that were opened before their sandboxes' first processes, by the sandboxes' markers. */
const openAhead = new Map<string, { way: Way; network: string }>();

/** Opens the way out of a sandbox before its first process. */
export async function openWayAhead(
  place: Place,
  sandbox: Sandbox,
  network: Network,
  signal: AbortSignal,
): Promise<void> {
  await closeAhead(sandbox.marker);
  const way = await openWay(place, sandbox, { network, signal });
  if (!signal.aborted) return void openAhead.set(sandbox.marker, { way, network: JSON.stringify(network) });
  await way[Symbol.asyncDispose]();
  signal.throwIfAborted();
}

/** Closes a way that no process took. */
export async function closeAhead(marker: string): Promise<void> {
  const ahead = openAhead.get(marker);
  openAhead.delete(marker);
  await ahead?.way[Symbol.asyncDispose]();
}

/** Returns the way that was opened ahead for this network; null when there is none that works. */
async function takeAhead({ marker }: Sandbox, network: Network): Promise<Way | null> {
  const ahead = openAhead.get(marker);
  if (ahead === undefined) return null;
  if (ahead.network === JSON.stringify(network) && (await isRunning(ahead.way.relay))) {
    openAhead.delete(marker);
    return ahead.way;
  }
  await closeAhead(marker);
  return null;
}

const isRunning = async (relay: Container | null): Promise<boolean> =>
  relay === null ||
  answered(relay.inspect(), 'looking at the relay').then(
    ({ State }) => State.Running,
    () => false,
  );

/** Returns what the process of a command would see, from what `runContainer` would give it. The way to the gateway is opened and closed for it. */
export async function explainContainer(place: Place, sandbox: Sandbox, command: Command): Promise<View> {
  const { engine, host } = place;
  const { limits, network, env, stdin, cwd } = command;
  await using link = await openGatewayLink({ python: host.python.executable, network });
  const user = userOf(place, sandbox);
  return {
    user: user === '0:0' ? `${user} inside, which is the worker's own user outside` : user,
    network: networkInView(network, 'a relay in a container of its own'),
    mounts: visibleMounts(containerMounts(place, sandbox, command, link)),
    own: ownFiles(engine, sandbox),
    env: {
      ...env,
      // A shell opens the standard input, and names its folder.
      ...(stdin === undefined ? {} : { PWD: cwd }),
      HOSTNAME: '<the name of the container>',
      ...(engine.isPodman ? { container: 'podman', TERM: 'xterm' } : {}),
    },
    limits: limitsInView(limits, engine.kernelLimits),
  };
}

/** The engine makes these for each container. */
const ownFiles = ({ isPodman }: Engine, { image }: Sandbox): OwnFiles[] => [
  { inside: '/', what: image === null ? 'an empty image, read-only' : `the image ${image.id}, read-only` },
  { inside: '/dev', what: 'null, zero, full, random, urandom, tty and terminals of its own' },
  { inside: '/proc', what: 'its own processes' },
  { inside: '/sys', what: 'the kernel’s, read-only' },
  ...['hosts', 'hostname', 'resolv.conf', ...(isPodman ? ['passwd', 'group'] : [])].map((name) => ({
    inside: `/etc/${name}`,
    what: 'written by the engine',
  })),
  ...(isPodman
    ? [
        { inside: '/run', what: 'in memory, writable; with the engine’s init' },
        { inside: '/var/tmp', what: 'in memory, writable' },
      ]
    : [{ inside: '/sbin/docker-init', what: 'the engine’s init' }]),
];

/** Returns the files of the host that a command's container has. */
function containerMounts(
  { host, own }: Pick<Place, 'host' | 'own'>,
  { image }: Sandbox,
  { mounts, stdin }: Pick<Command, 'mounts' | 'stdin'>,
  link: GatewayLink,
): Mount[] {
  return [
    ...(image === null ? hostMounts(host.python) : []),
    ...own,
    // The rest of the way to the gateway is in the relay's container.
    ...link.mounts.filter(({ inside }) => inside.startsWith('/etc/')),
    ...mounts,
    // The engines of Docker and podman take a standard input over their connection in different ways.
    ...(stdin === undefined ? [] : [{ host: stdin, inside: STDIN, writable: false }]),
  ];
}

/** The relay has the programs of this host, so that the task's image needs none for it. */
async function startRelay(place: Place, sandbox: Sandbox, link: GatewayLink, signal: AbortSignal): Promise<Container> {
  const container = await createContainer(
    place.engine,
    {
      ...common(place, sandbox),
      Labels: { ...place.labels, [LABELS.role]: 'relay' },
      Entrypoint: link.relay.slice(0, 1),
      Cmd: [...link.relay.slice(1), '/bin/sleep', 'infinity'],
      HostConfig: {
        ...hardened(place),
        NetworkMode: 'none',
        Mounts: [...hostMounts(place.host.python), ...link.mounts].map(bind),
        PidsLimit: 16,
        Ulimits: ulimits(sandbox, 16),
        Memory: 256 * 2 ** 20,
      },
    },
    null,
    'making the relay',
  );
  try {
    await answered(container.start(), 'starting the relay');
    await relayReady(container, link, signal);
    return container;
  } catch (error) {
    await removed(container).catch(ignore);
    throw error;
  }
}

/** Returns when the relay has started, or when the signal aborts. */
async function relayReady(container: Container, link: GatewayLink, signal: AbortSignal): Promise<void> {
  const start = performance.now();
  for (let round = 1; !signal.aborted && !(await link.relayStarted()); round += 1) {
    if (performance.now() - start > RELAY_MS)
      throw new SandboxError(`the sandbox's relay to the gateway did not start within ${RELAY_MS / 1000} s`);
    if (round % 50 === 0) {
      const { State } = await answered(container.inspect(), 'looking at the relay');
      if (!State.Running)
        throw new SandboxError(`the sandbox's relay to the gateway ended at once, with exit code ${State.ExitCode}`);
    }
    await sleep(10);
  }
}

type Joined = { mode: string; mounts: Mount[]; started: () => void };

async function runIn(
  place: Place,
  sandbox: Sandbox,
  command: Command,
  network: Joined,
): Promise<Omit<ProcessResult, keyof LinkReport>> {
  const { argv, cwd, env, limits, stdin } = command;
  const memory = Math.ceil(limits.memoryMb * 2 ** 20);
  const program = stdin === undefined ? argv : ['/bin/sh', '-c', `exec "$@" < ${STDIN}`, 'sh', ...argv];
  const container = await createContainer(
    place.engine,
    {
      ...common(place, sandbox),
      Entrypoint: program.slice(0, 1),
      Cmd: program.slice(1),
      WorkingDir: cwd,
      Env: Object.entries(env).map(([name, value]) => `${name}=${value}`),
      AttachStdout: true,
      AttachStderr: true,
      HostConfig: {
        ...hardened(place),
        NetworkMode: network.mode,
        Mounts: network.mounts.map(bind),
        Memory: memory,
        MemorySwap: memory,
        NanoCpus: Math.round(limits.cpus * 1e9),
        // The engine's own init is one more process.
        PidsLimit: limits.processes + 1,
        Ulimits: [...ulimits(sandbox, limits.processes + 1), limitOf('fsize', Math.ceil(limits.storageMb * 2 ** 20))],
      },
    },
    sandbox.image?.id ?? null,
    'making the container',
  );
  try {
    return await supervised(place, sandbox, command, container, network.started);
  } finally {
    // When this fails the program may still run, so the run fails too.
    await removed(container);
  }
}

async function supervised(
  { engine, host }: Place,
  { root, uid }: Sandbox,
  { limits, onOutput, signal }: Command,
  container: Container,
  started: () => void,
): Promise<Omit<ProcessResult, keyof LinkReport>> {
  const streams = await answered(
    container.attach({ stream: true, stdout: true, stderr: true }),
    'attaching to the container',
  );
  const stopReading = (): void =>
    void (
      streams instanceof Stream &&
      'destroy' in streams &&
      typeof streams.destroy === 'function' &&
      streams.destroy()
    );
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  engine.docker.modem.demuxStream(streams, stdout, stderr);
  const ended = endOf(streams).then(() => [stdout, stderr].forEach((stream) => stream.end()));
  // A program can run out of memory before the engine has answered that it started.
  const memory = watchMemory(container.id);
  try {
    if (signal.aborted) {
      memory.stop();
      stopReading();
      return notStarted();
    }
    await answered(container.start(), 'starting the container');
  } catch (error) {
    memory.stop();
    stopReading();
    const missing = commandThatIsMissing(error);
    if (missing === null) throw error;
    return { ...notStarted(), reason: 'exited', exitCode: NOT_FOUND, stderr: `${missing}\n` };
  }
  started();
  // The container stays until it is removed, so its end cannot be missed.
  const waiting: Promise<{ StatusCode: number }> = container.wait({ condition: 'not-running' });
  const killing = killUntil(container, waiting);
  const spec = { limits, root, uid, isolation: host, signal, ...(onOutput ? { onOutput } : {}) };
  try {
    const pid = await pidOf(container);
    const result = await supervise(spec, null, {
      // An engine in a machine of its own names processes that this host does not have. The sandbox's user finds those that it has.
      pid: memory.isOnThisHost(pid) && pid > 0 ? pid : -1,
      stdout,
      stderr,
      kill: killing.begin,
      ended: Promise.race([waiting, killing.failed]).then(
        async ({ StatusCode }) => {
          await Promise.race([ended, sleep(2000, undefined, { ref: false })]);
          await drained([stdout, stderr]);
          return { exitCode: StatusCode, signal: null };
        },
        (error: unknown) => {
          if (error instanceof SandboxError) throw error;
          throw new SandboxError(`the container engine lost the container: ${messageOf(error)}`, { cause: error });
        },
      ),
    });
    const output = LOST_CONNECTION.test(result.stderr) ? await loggedOutput(engine, container, limits.outputBytes) : {};
    const last = await answered(container.inspect(), 'looking at the container').catch(() => null);
    const seen = memory.kills();
    // The engine does not tell whose limit it was. Its word counts where the group was gone before its counters were read.
    const kills = !seen.oomKills && last?.State.OOMKilled ? { oomKills: 1, hitMemoryLimit: true } : seen;
    const whole = { ...result, ...output };
    return judgeMemory(isExecFailure(whole) ? { ...whole, exitCode: NOT_FOUND } : whole, kills, false);
  } finally {
    killing.stop();
    memory.stop();
    stopReading();
  }
}

/** Returns the process of a container; 0 when podman cannot look at it, because its program ends at this moment. */
const pidOf = (container: Container): Promise<number> =>
  answered(container.inspect(), 'looking at the container').then(
    ({ State }) => State.Pid,
    (error: unknown) => {
      if (statusOf(error) === null) throw error;
      return 0;
    },
  );

/** Matches the error that podman writes instead of a program's output, if the program ended while podman connected to it. */
const LOST_CONNECTION = /^Error: read unixpacket .*: connection reset by peer\n$/m;

/** Returns the output that the engine has kept. */
async function loggedOutput(
  { docker }: Engine,
  container: Container,
  limit: number,
): Promise<Pick<ProcessResult, 'stdout' | 'stderr'>> {
  const logged = await answered(container.logs({ stdout: true, stderr: true, follow: false }), 'reading the output');
  const bounded = new BoundedOutput(limit, ignore);
  const [out, error] = [new PassThrough(), new PassThrough()];
  const [stdout, stderr] = [bounded.collect(out), bounded.collect(error)];
  const whole = Readable.from([logged]);
  docker.modem.demuxStream(whole, out, error);
  await endOf(whole);
  out.end();
  error.end();
  await Promise.all([endOf(out), endOf(error)]);
  return { stdout: stdout(), stderr: stderr() };
}

/** Makes a container of an image, or of this host's programs. */
async function createContainer(
  engine: Engine,
  options: ContainerCreateOptions,
  image: string | null,
  what: string,
): Promise<Container> {
  const make = (Image: string) => answered(engine.docker.createContainer({ ...options, Image }), what);
  if (image !== null) return make(image);
  const made = await hostImage(engine);
  return make(made).catch(async (error: unknown) => {
    if (statusOf(error) !== 404) throw error;
    // Somebody has removed the image, for example by `docker image prune`.
    forgetHostImage(engine);
    return make(await hostImage(engine));
  });
}

/** The parts that a container of a sandbox always has. */
const common = (place: Place, sandbox: Sandbox): ContainerCreateOptions => ({
  Labels: { ...place.labels, [LABELS.role]: 'program' },
  User: userOf(place, sandbox),
  // An image's own check of its health would be one more process.
  Healthcheck: { Test: ['NONE'] },
});

function userOf({ engine }: Pick<Place, 'engine'>, { uid }: Sandbox): string {
  if (uid !== null) return `${uid}:${uid}`;
  // In an engine without root, its root is the worker's own user.
  return engine.isRootless && !engine.isPodman ? '0:0' : `${process.getuid?.()}:${process.getgid?.()}`;
}

const hardened = ({ runtime, engine }: Place): NonNullable<ContainerCreateOptions['HostConfig']> => ({
  ReadonlyRootfs: true,
  CapDrop: ['ALL'],
  // SELinux would refuse the mounts, because the files of this host have no label for containers.
  SecurityOpt: ['no-new-privileges', 'label=disable'],
  // The output is read over the connection. podman also keeps it until the container is removed, because it can lose the connection.
  LogConfig: { Type: engine.isPodman ? 'k8s-file' : 'none', Config: {} },
  Init: true,
  ...(engine.isRootless && engine.isPodman ? { UsernsMode: 'keep-id' } : {}),
  ...(runtime === undefined ? {} : { Runtime: runtime }),
});

/** The limits of each process. Other processes of the worker's own user would count too, so only a user of the sandbox's own has one on processes. */
const ulimits = ({ uid }: Sandbox, processes: number) => [
  limitOf('core', 0),
  limitOf('nofile', DESCRIPTORS),
  ...(uid === null ? [] : [limitOf('nproc', processes)]),
];

const limitOf = (name: string, most: number) => ({ Name: name, Soft: most, Hard: most });

const bind = ({ host, inside, writable }: Mount) => ({
  Type: 'bind' as const,
  Source: host,
  Target: inside,
  ReadOnly: !writable,
});

/** These match the errors of runc and crun for a program that they cannot execute. A hook of the engine (`fork/exec`) is no program of the image. */
const CANNOT_EXECUTE = [
  /\bexec: "[^"]*": .*(not found|no such file|permission denied)/i,
  /(?<!fork\/)\bexec \S+: (no such file or directory|permission denied)/i,
  /executable file [`'"][^`'"]*[`'"] not found/i,
  /\bopen executable: (no such file or directory|permission denied)/i,
  /exec container process\b.*: (no such file or directory|permission denied)/i,
];

/** Returns the engine's message when it says that the image does not have the command; null for any other error. */
export function commandThatIsMissing(error: unknown): string | null {
  const message = messageOf(error);
  return statusOf(error) !== null && CANNOT_EXECUTE.some((words) => words.test(message)) ? message : null;
}

/** podman's init reports a missing command in this way. */
const isExecFailure = ({ exitCode, stderr }: { exitCode: number | null; stderr: string }): boolean =>
  exitCode === 1 && /^ERROR \(catatonit:\d+\): failed to exec/.test(stderr);

/** Kills a container each second, from the first call of `begin` until it has ended. `failed` rejects when it does not end. */
function killUntil(
  container: Container,
  ended: Promise<unknown>,
): { begin: () => Promise<void>; failed: Promise<never>; stop: () => void } {
  const { promise: failed, reject } = Promise.withResolvers<never>();
  failed.catch(ignore);
  let timer: NodeJS.Timeout | undefined;
  let last = 'it gave no answer';
  let isOver = false;
  const stop = (): void => {
    isOver = true;
    clearInterval(timer);
  };
  ended.then(stop, stop);
  const kill = (): void =>
    void container.kill().catch((error: unknown) => {
      last = messageOf(error);
    });
  const begin = async (): Promise<void> => {
    if (isOver || timer !== undefined) return;
    const first = performance.now();
    kill();
    timer = setInterval(() => {
      if (performance.now() - first < KILL_MS) return kill();
      stop();
      reject(new SandboxError(`the container engine did not end a container within ${KILL_MS / 1000} s: ${last}`));
    }, 1000);
  };
  return { begin, failed, stop };
}

/**
 * Removes a container and what it started. One that is gone already is no failure.
 * @throws SandboxError when it is left after some seconds
 */
export async function removed(container: Pick<Container, 'remove' | 'id'>): Promise<void> {
  for (const start = performance.now(); ; await sleep(200))
    try {
      return void (await answered(
        container.remove({ force: true, v: true }),
        `removing the container ${container.id.slice(0, 12)}`,
      ));
    } catch (error) {
      if (statusOf(error) === 404) return;
      if (performance.now() - start > REMOVAL_MS) throw error;
    }
}

const endOf = (stream: NodeJS.ReadableStream): Promise<void> =>
  new Promise((resolve) => {
    for (const event of ['end', 'close', 'error']) stream.once(event, () => resolve());
  });

const ignore = (): void => {};

type MemoryGroup = { folder: string; version: 1 | 2 };

/**
 * Reads the counters of a container's control group while it exists: not every engine reports what the kernel killed. Until `isOnThisHost`
 * finds the group by a process of the container, it is looked for in the places that the engines use.
 */
function watchMemory(id: string): {
  isOnThisHost: (pid: number) => boolean;
  kills: () => MemoryKills;
  stop: () => void;
} {
  let group: MemoryGroup | null = null;
  let last = NO_MEMORY_KILLS;
  const look = (): void => {
    group ??= usualGroups(id).find(({ folder }) => existsSync(folder)) ?? null;
    if (group === null) return;
    const kills = memoryKillsIn(group.folder, group.version);
    // A group that is being removed may have lost some of its counters already.
    if (kills.oomKills && existsSync(group.folder)) last = kills;
  };
  const timer = setInterval(look, MEMORY_POLL_MS).unref();
  return {
    isOnThisHost: (pid) => {
      group = memoryGroupOf(pid, id) ?? group;
      look();
      return group !== null;
    },
    kills: () => last,
    stop: () => clearInterval(timer),
  };
}

/** The groups of a container with Docker and podman, where the engine makes them itself and where systemd does. */
const usualGroups = (id: string): MemoryGroup[] =>
  [
    `libpod_parent/libpod-${id}`,
    `docker/${id}`,
    `machine.slice/libpod-${id}.scope`,
    `system.slice/docker-${id}.scope`,
  ].flatMap((path): MemoryGroup[] => [
    { folder: join('/sys/fs/cgroup/memory', path), version: 1 },
    { folder: join('/sys/fs/cgroup', path), version: 2 },
  ]);

/** Returns the control group for memory of a container's process; null where it cannot be found. */
function memoryGroupOf(pid: number, id: string): MemoryGroup | null {
  const lines = (textIn(`/proc/${pid}`, 'cgroup') ?? '')
    .trim()
    .split('\n')
    .map((line) => line.split(':'));
  const version1 = lines.find(([, names = '']) => names.split(',').includes('memory'))?.[2];
  const version2 = lines.find(([number]) => number === '0')?.[2];
  if (version1?.includes(id)) return { folder: join('/sys/fs/cgroup/memory', version1), version: 1 };
  return version2?.includes(id) ? { folder: join('/sys/fs/cgroup', version2), version: 2 } : null;
}

function textIn(folder: string, file: string): string | null {
  try {
    return readFileSync(join(folder, file), 'utf8');
  } catch {
    return null;
  }
}
