import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { chmod, chown, copyFile, mkdir, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { makePrivate } from '../../cli/private-folder.ts';
import type { GuardOptions } from '../../cli/temporal/guard-options.ts';
import { TestPostgres } from '../support/harness/postgres.ts';
import { until } from '../support/harness/until.ts';
import type { Sandbox } from '../../activities/sandbox/empty-sandbox.ts';
import { removeNamed } from '../../activities/sandbox/destroy-sandbox.ts';
import { guaranteeRows, statementsOf, type GuaranteeName } from '../../activities/sandbox/guarantees.ts';
import type { Network } from '../../activities/sandbox/network.ts';
import { processTable } from '../../activities/sandbox/process-table.ts';
import type { ProcessResult } from '../../activities/sandbox/run-process.ts';
import {
  canNest,
  isolations,
  sandboxWith,
  shell,
  specOf,
  temporaryHome,
  type TestIsolation,
} from '../support/harness/sandbox-fixtures.ts';

/** The things that an attempt can use: a sandbox, another sandbox, and things of the host that it should not reach. */
type World = {
  isolation: TestIsolation;
  home: string;
  sandbox: Sandbox;
  other: Sandbox;
  hostProcess: ChildProcess;
  postgres: TestPostgres;
  token: string;
};

/** Tries to break one guarantee from inside a sandbox. Returns true when the attempt succeeded. */
const ATTEMPTS: Record<GuaranteeName, (world: World) => Promise<boolean>> = {
  hostFiles: async (world) => {
    const { stdout } = await run(
      world,
      `cat ${world.home}/readable.txt; ls -A / | sed s:^:/:; ls -A /etc | sed s:^:/etc/:`,
    );
    const shown = stdout.split('\n').filter((line) => line.startsWith('/'));
    const ofPython = `/${world.isolation.python.prefix?.split('/')[1] ?? 'usr'}`;
    return stdout.includes(world.token) || shown.some((path) => !SHOWN.includes(path) && path !== ofPython);
  },
  deploymentFiles: (world) => prints(world, `cat ${world.home}/deployment/temporal.db`, world.token),
  otherSandboxes: async (world) => {
    const file = join(world.other.work, 'theirs.txt');
    const read = await prints(world, `cat ${file}; echo changed > ${file}; ls ${world.other.root}`, world.token);
    return read || !(await readFile(file, 'utf8')).includes(world.token);
  },
  processesSeen: (world) => prints(world, `tr '\\0' '\\n' < /proc/${world.hostProcess.pid}/cmdline`, '3600.25'),
  // Signal 0 asks for the right to signal and has no other effect.
  processesEnded: (world) => prints(world, `kill -0 ${world.hostProcess.pid} && echo allowed`, 'allowed'),
  processesLeft: async (world) => {
    const seconds = `3600.${Math.floor(Math.random() * 1e9)}`;
    await run(world, `(env -i setsid sleep ${seconds} >/dev/null 2>&1 &); sleep 0.2`);
    const left = await withCommandLine(seconds);
    left.forEach((pid) => process.kill(pid, 'SIGKILL'));
    return left.length > 0;
  },
  rights: async (world) => {
    if (
      await prints(
        world,
        'grep -q "NoNewPrivs:.1" /proc/self/status && grep -q "CapPrm:.0*$" /proc/self/status || echo may',
        'may',
      )
    )
      return true;
    const setuid = join(world.sandbox.work, 'setuid-id');
    await copyFile('/usr/bin/id', setuid);
    await chmod(setuid, 0o4755);
    const mount = `mount -t tmpfs ${world.token} mounted`;
    const { stdout } = await run(
      world,
      `./setuid-id -u; mkdir -p mounted; ${mount}; unshare --map-root-user --mount ${mount}`,
    );
    return (
      (process.getuid?.() === 0 && /^0$/m.test(stdout)) ||
      (await readFile('/proc/self/mountinfo', 'utf8')).includes(world.token)
    );
  },
  filesLeft: async (world) => {
    const name = `trialgate-left-${world.token}`;
    const open = SHARED.map((folder) => join(folder, `trialgate-open-${world.token}`));
    const folders = [...SHARED, ...open];
    onTestFinished(async () => {
      await Promise.all(
        [...open, ...SHARED.map((folder) => join(folder, name))].map((path) =>
          rm(path, { recursive: true, force: true }),
        ),
      );
    });
    for (const folder of open) {
      await mkdir(folder);
      await chmod(folder, 0o1777);
    }
    const left = async (): Promise<boolean> =>
      (await Promise.all(folders.map(async (folder) => (await readdir(folder)).includes(name)))).includes(true);
    await run(world, folders.map((folder) => `echo > ${folder}/${name}`).join('; '));
    if (await left()) return true;
    // The worker and its launcher were killed, so only the removal of the sandbox is left.
    const { uid, home, name: killed } = await sandboxWith(world.home, {}, undefined, 'killed');
    if (world.isolation.kind === 'user' && uid !== null)
      await Promise.all(
        folders.map((folder) => writeFile(join(folder, name), '').then(() => chown(join(folder, name), uid, uid))),
      );
    await removeNamed(home, killed, { isolation: world.isolation });
    return left();
  },
  sharedFolders: async (world) => {
    const name = `trialgate-shared-${world.token}`;
    await Promise.all(SHARED.map((folder) => writeFile(join(folder, name), world.token)));
    onTestFinished(async () => void (await Promise.all(SHARED.map((folder) => rm(join(folder, name))))));
    return prints(world, SHARED.map((folder) => `cat ${folder}/${name}`).join('; '), world.token);
  },
  // Without a filter the kernel runs these calls, or rejects their arguments.
  systemCalls: (world) => prints(world, `python3 -c '${RARE_CALLS}'`, 'answered'),
  descriptors: async ({ isolation, home, sandbox, token }) => {
    const { signal: _, ...spec } = specOf(isolation, sandbox, 'cat <&20');
    const code = `
      import { launch } from ${JSON.stringify(new URL('../../activities/sandbox/launcher.ts', import.meta.url).href)};
      const { stdout } = await launch({ ...${JSON.stringify(spec)}, signal: new AbortController().signal });
      console.log(stdout);`;
    // This worker inherits a descriptor above those that Node closes itself.
    const opened = ['-c', 'exec 20< "$0"; exec "$@"', join(home, 'readable.txt'), process.execPath];
    const { stdout } = await promisify(execFile)('bash', [...opened, '--input-type=module', '-e', code]);
    return stdout.includes(token);
  },
  // No process holds files that are in flight between sockets.
  memory: ({ isolation, sandbox }) =>
    printsWith(shell(isolation, sandbox, `python3 -c '${MEMORY_IN_FLIGHT}'`, { memoryMb: 128 }), 'took it'),
  processorTime: async (world) => {
    const { isolation, sandbox } = world;
    // Without control groups the sandbox is limited to some cores, and it can change that.
    if (!isolation.cgroup)
      return prints(world, 'taskset -pc 0-4095 $$ > /dev/null && nproc', String(availableParallelism()));
    const burn = 'for i in 1 2 3 4; do timeout 2 bash -c "while :; do :; done" & done; wait; times';
    const { stdout } = await shell(isolation, sandbox, burn, { cpus: 0.25 });
    const [minutes = 0, seconds = 0] = (stdout.trim().split('\n').at(-1) ?? '').split(/[ms ]+/).map(Number);
    return minutes * 60 + seconds > 0.9;
  },
  storage: async ({ isolation, sandbox }) => {
    const files = ['a', 'b', 'c'].map((name) => `large-${name}`);
    await shell(isolation, sandbox, files.map((name) => `head -c 8M /dev/zero > ${name}`).join('; '), {
      storageMb: 10,
    });
    const sizes = await Promise.all(
      files.map((name) =>
        stat(join(sandbox.work, name)).then(
          ({ size }) => size,
          () => 0,
        ),
      ),
    );
    await Promise.all(files.map((name) => rm(join(sandbox.work, name), { force: true })));
    return sizes.reduce((sum, size) => sum + size, 0) > 10 * 2 ** 20;
  },
  agentNetwork: async (world) =>
    connects(world, { kind: 'gateway', url: 'http://127.0.0.1:1', folder: world.sandbox.root }),
  listedHosts: async (world) => {
    const { isolation, sandbox } = world;
    const listed = { kind: 'gateway', url: 'http://127.0.0.1:1', folder: sandbox.root, hosts: LISTED } as const;
    const network: Network = isolation.kind === 'bubblewrap' ? listed : { kind: 'host' };
    if (await connects(world, network)) return true;
    const port = await listeningPort();
    const targets = [...['127.0.0.1', 'localhost', '[::1]'].map((host) => `${host}:${port}`), 'other.test:443'];
    const { stdout, egress } = await shell(isolation, sandbox, `python3 -c '${ASK_PROXY}' ${targets.join(' ')}`, {
      network,
    });
    // The log shows that the proxy was there to refuse.
    expect(egress.length).toBeGreaterThan(0);
    return stdout.includes('reached');
  },
  verifierNetwork: (world) => connects(world, { kind: 'none' }),
  postgres: async ({ isolation, sandbox, postgres }) => {
    const reply = async (network: Network): Promise<string> =>
      (await shell(isolation, sandbox, `python3 -c '${START_POSTGRES}' ${postgres.port}`, { network })).stdout.trim();
    expect(await reply({ kind: 'host' })).toBe('asks for a password');
    const hosts = [`127.0.0.1:${postgres.port}`];
    const gateway = { kind: 'gateway', url: 'http://127.0.0.1:1', folder: sandbox.root } as const;
    const asked = `python3 -c '${ASK_PROXY}' ${hosts[0]}`;
    const listed = await shell(isolation, sandbox, asked, { network: { ...gateway, hosts } });
    return (await reply(gateway)) !== '' || listed.stdout.includes('reached');
  },
  temporal: async ({ isolation, home, sandbox, token }) => {
    const port = await freePort();
    const server = [
      '-e',
      `require('http').createServer((_, response) => response.end('${token}')).listen(${port}, '127.0.0.1')`,
    ];
    const guarded: GuardOptions = {
      bwrap: isolation.bwrap ?? '',
      ports: [{ port, socket: join(home, 'temporal.sock') }],
      file: process.execPath,
      args: server,
    };
    const behind = spawn(
      process.execPath,
      isolation.kind === 'bubblewrap' ? [GUARD, JSON.stringify(guarded)] : server,
      { stdio: 'ignore' },
    );
    onTestFinished(() => void behind.kill());
    const answers = (): Promise<boolean> =>
      fetch(`http://127.0.0.1:${port}`).then(
        async (reply) => (await reply.text()) === token,
        () => false,
      );
    await until(answers);
    const own = connect({ port, host: '127.0.0.1' });
    own.on('error', () => {});
    onTestFinished(() => void own.destroy());
    await once(own, 'connect');
    // The proxy is a process of the deployment's user, which the guard lets through.
    const hosts = [`127.0.0.1:${port}`];
    const network: Network = { kind: 'gateway', url: 'http://127.0.0.1:1', folder: sandbox.root, hosts };
    const listed = await shell(isolation, sandbox, `python3 -c '${ASK_PROXY}' ${hosts[0]}`, { network });
    if (listed.stdout.includes('reached')) return true;
    return printsWith(
      shell(isolation, sandbox, `python3 -c '${ASK_TEMPORAL}' ${port} ${own.localPort}`, {
        network: { kind: 'host' },
        seconds: 60,
      }),
      token,
    );
  },
};

const MEMORY_IN_FLIGHT = `
import os, socket
here, there = socket.socketpair()
for _ in range(40):
    file = os.memfd_create("x")
    os.write(file, bytes(8 * 2**20))
    socket.send_fds(here, [b"x"], [file])
    os.close(file)
print("took it")`;

/** System calls with their numbers on x86-64 and their arguments, the first of which makes a namespace. */
const RARE_CALLS = `
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
calls = {"unshare": [272, 0x10000000], "clone3": [435, 0, 0], "keyctl": [250, 0, -2, 0], "io_uring_setup": [425, 1, 0], "userfaultfd": [323, 1], "add_key": [248, 0, 0, 0, 0, 0]}
for name, arguments in calls.items():
    if libc.syscall(*arguments) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS): print("answered", name)
if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0: print("answered mount")`;

/** Begins a session of the superuser, without a password. */
const START_POSTGRES = `
import socket, struct, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
names = b"user\\0postgres\\0database\\0postgres\\0\\0"
connection.send(struct.pack("!ii", 8 + len(names), 196608) + names)
reply = connection.recv(9)
print("asks for a password" if reply[:1] == b"R" and struct.unpack("!i", reply[5:9])[0] != 0 else reply)`;

/** Asks from a port of its own, and from the port of an allowed process with other addresses. */
const ASK_TEMPORAL = `
import socket, sys
server, own = int(sys.argv[1]), int(sys.argv[2])
for source in [("127.0.0.1", 0)] + [(f"127.0.0.{last}", own) for last in range(2, 12)]:
    with socket.socket() as connection:
        connection.settimeout(10)
        try:
            connection.bind(source)
            connection.connect(("127.0.0.1", server))
            connection.send(b"GET / HTTP/1.0\\r\\n\\r\\n")
            while part := connection.recv(1000): print(part)
        except OSError: pass`;

/** A list that no file may have, because loopback is in it, and a name that nobody has. */
const LISTED = ['127.0.0.1', 'listed.test'];

/** Asks the egress proxy for tunnels. */
const ASK_PROXY = `
import socket, sys
for target in sys.argv[1:]:
    for ask in (f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n", f"GET http://{target}/ HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n"):
        try:
            connection = socket.create_connection(("127.0.0.1", 8701), 10)
            connection.send(ask.encode())
            answer = connection.recv(1000)
            print(target, "reached" if b" 200 " in answer[:20] else answer[9:12])
        except OSError as error: print(error)`;

const GUARD = fileURLToPath(new URL('../../cli/temporal/guard.ts', import.meta.url));

const SHARED = ['/tmp', '/var/tmp', '/dev/shm'];

/** All that a sandbox may see at the top of the file tree and in /etc, besides Python's folder. */
const SHOWN = [
  ...[
    'app',
    'agents',
    'home',
    'logs',
    'trials',
    'warm-shell',
    'bin',
    'sbin',
    'lib',
    'lib32',
    'lib64',
    'libx32',
    'usr',
    'etc',
    'proc',
    'dev',
    'tmp',
    'run',
  ].map((name) => `/${name}`),
  ...[
    'alternatives',
    'ca-certificates',
    'hosts',
    'ld.so.cache',
    'localtime',
    'nsswitch.conf',
    'pki',
    'resolv.conf',
    'ssl',
  ].map((name) => `/etc/${name}`),
];

const run = ({ isolation, sandbox }: World, script: string) => shell(isolation, sandbox, script);

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' ? (address?.port ?? 0) : 0;
}

/** Listens on this machine's loopback until the test ends. */
async function listeningPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  return typeof address === 'object' ? (address?.port ?? 0) : 0;
}

/** Connects to a listener on this machine's loopback, or to another host. `network.test.ts` tries UDP, abstract sockets and other addresses too. */
async function connects({ isolation, sandbox }: World, network: Network): Promise<boolean> {
  const port = await listeningPort();
  // A UDP socket sends nothing when it connects, but needs a route.
  return (
    (await shell(isolation, sandbox, `: < /dev/tcp/127.0.0.1/${port} || : > /dev/udp/192.0.2.1/9`, { network }))
      .exitCode === 0
  );
}

async function prints(world: World, script: string, proof: string): Promise<boolean> {
  return printsWith(run(world, script), proof);
}

async function printsWith(running: Promise<ProcessResult>, proof: string): Promise<boolean> {
  return (await running).stdout.includes(proof);
}

async function withCommandLine(argument: string): Promise<number[]> {
  const lines = await Promise.all(
    processTable().map(async ({ pid }) => ({
      pid,
      line: await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => ''),
    })),
  );
  return lines.filter(({ line }) => line.split('\0').includes(argument)).map(({ pid }) => pid);
}

const all = await isolations();
const CLOSED = { isClosed: true };
const forms: { form: string; isolation: TestIsolation }[] = all.map((isolation) => ({
  form: isolation.kind,
  isolation,
}));
for (const isolation of all.slice(0, 1)) {
  const without = { ...isolation, seccomp: null, cgroup: null };
  forms.push({ form: `${isolation.kind} without seccomp and cgroups`, isolation: without });
  if (!(await canNest(isolation))) continue;
  forms.push(
    { form: 'a fork of a warm process', isolation: { ...isolation, isWarm: true } },
    { form: 'a fork without seccomp and cgroups', isolation: { ...without, isWarm: true } },
  );
}

/** Makes the deployment's folder as `up` does. One that has something else in it stays open. */
async function makeDeployment(folder: string, { isClosed }: { isClosed: boolean }, token: string): Promise<void> {
  await mkdir(folder, { mode: 0o755 });
  if (!isClosed) await writeFile(join(folder, 'thesis.tex'), '');
  makePrivate(folder);
  await writeFile(join(folder, 'temporal.db'), token);
}

async function postgresWithPassword(): Promise<TestPostgres> {
  const postgres = await TestPostgres.create();
  await writeFile(join(postgres.data, 'pg_hba.conf'), 'host all all 127.0.0.1/32 scram-sha-256\n');
  const client = new pg.Client({ connectionString: postgres.url });
  await client.connect();
  await client.query('select pg_reload_conf()');
  await client.end();
  return postgres;
}

describe('in each form of isolation', () => {
  const started = postgresWithPassword();
  afterAll(async () => (await started).close());

  describe.each(forms)('$form', ({ isolation }) => {
    const folder = temporaryHome();
    let world: World;

    beforeAll(async () => {
      const { home } = await folder;
      const token = randomUUID();
      const sandbox = await sandboxWith(home, {});
      const other = await sandboxWith(home, { 'theirs.txt': token }, undefined, 'other');
      await writeFile(join(home, 'readable.txt'), token);
      await makeDeployment(join(home, 'deployment'), CLOSED, token);
      world = {
        isolation,
        home,
        sandbox,
        other,
        token,
        postgres: await started,
        hostProcess: spawn('sleep', ['3600.25'], { stdio: 'ignore' }),
      };
    });

    afterAll(async () => {
      world.hostProcess.kill('SIGKILL');
      await (await folder)[Symbol.asyncDispose]();
    });

    test.each(statementsOf(isolation, CLOSED))('$sentence', async ({ name, held }) => {
      expect(await ATTEMPTS[name](world)).toBe(!held);
    });

    test('where a deployment’s folder stays open to others, the threat model’s statement that a sandbox can read it is true', async () => {
      const open = { isClosed: false };
      await makeDeployment(join(world.home, 'open'), open, world.token);
      const { held } = statementsOf(isolation, open).find(({ name }) => name === 'deploymentFiles') ?? { held: null };
      expect(await prints(world, `cat ${world.home}/open/temporal.db`, world.token)).toBe(!held);
    });
  });
});

test('the threat model contains the table of guarantees that these tests check', async () => {
  const document = await readFile(new URL('../../docs/threat-model.md', import.meta.url), 'utf8');
  expect(document).toContain(guaranteeRows().join('\n'));
});
