import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { until } from '../../store/testing/until.ts';
import type { Sandbox } from './create-sandbox.ts';
import { guaranteeRows, statementsOf, type GuaranteeName } from './guarantees.ts';
import type { Isolation } from './isolation.ts';
import type { Network } from './network.ts';
import { processTable } from './process-table.ts';
import type { ProcessResult } from './run-process.ts';
import { isolations, sandboxWith, shell, specOf, temporaryHome } from './testing/fixtures.ts';

/** The things that an attempt can use: a sandbox, another sandbox, and things of the host that it should not reach. */
type World = { isolation: Isolation; home: string; sandbox: Sandbox; other: Sandbox; hostProcess: ChildProcess; token: string };

/** Tries to break one guarantee from inside a sandbox. Returns true when the attempt succeeded. */
const ATTEMPTS: Record<GuaranteeName, (world: World) => Promise<boolean>> = {
  hostFiles: (world) => prints(world, `cat ${world.home}/readable.txt`, world.token),
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
  rights: (world) => prints(world, 'grep -q "NoNewPrivs:.1" /proc/self/status && grep -q "CapPrm:.0*$" /proc/self/status || echo may', 'may'),
  filesLeft: async (world) => {
    const name = `trialgate-left-${world.token}`;
    onTestFinished(async () => void (await Promise.all(SHARED.map((folder) => rm(join(folder, name), { force: true })))));
    await run(world, SHARED.map((folder) => `echo > ${folder}/${name}`).join('; '));
    const seen = await Promise.all(SHARED.map(async (folder) => (await readdir(folder)).includes(name)));
    return seen.includes(true);
  },
  sharedFolders: async (world) => {
    const name = `trialgate-shared-${world.token}`;
    await Promise.all(SHARED.map((folder) => writeFile(join(folder, name), world.token)));
    onTestFinished(async () => void (await Promise.all(SHARED.map((folder) => rm(join(folder, name))))));
    return prints(world, SHARED.map((folder) => `cat ${folder}/${name}`).join('; '), world.token);
  },
  // Without a filter the kernel runs the call and rejects its arguments.
  systemCalls: (world) =>
    prints(world, `python3 -c 'import ctypes, errno; c = ctypes.CDLL(None, use_errno=True); c.syscall(435, 0, 0); print(errno.errorcode[ctypes.get_errno()])'`, 'EINVAL'),
  descriptors: async ({ isolation, home, sandbox, token }) => {
    const { signal: _, ...spec } = specOf(isolation, sandbox, 'cat <&20');
    const code = `
      import { launch } from ${JSON.stringify(new URL('./launcher.ts', import.meta.url).href)};
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
    if (!isolation.cgroup) return prints(world, 'taskset -pc 0-4095 $$ > /dev/null && nproc', String(availableParallelism()));
    const burn = 'for i in 1 2 3 4; do timeout 2 bash -c "while :; do :; done" & done; wait; times';
    const { stdout } = await shell(isolation, sandbox, burn, { cpus: 0.25 });
    const [minutes = 0, seconds = 0] = (stdout.trim().split('\n').at(-1) ?? '').split(/[ms ]+/).map(Number);
    return minutes * 60 + seconds > 0.9;
  },
  storage: async ({ isolation, sandbox }) => {
    const files = ['a', 'b', 'c'].map((name) => `large-${name}`);
    await shell(isolation, sandbox, files.map((name) => `head -c 8M /dev/zero > ${name}`).join('; '), { storageMb: 10 });
    const sizes = await Promise.all(files.map((name) => stat(join(sandbox.work, name)).then(({ size }) => size, () => 0)));
    await Promise.all(files.map((name) => rm(join(sandbox.work, name), { force: true })));
    return sizes.reduce((sum, size) => sum + size, 0) > 10 * 2 ** 20;
  },
  agentNetwork: async (world) => connects(world, { kind: 'gateway', url: 'http://127.0.0.1:1', folder: world.sandbox.root }),
  verifierNetwork: (world) => connects(world, { kind: 'none' }),
  temporal: async ({ isolation, home, sandbox, token }) => {
    const port = await freePort();
    const server = ['-e', `require('http').createServer((_, response) => response.end('${token}')).listen(${port}, '127.0.0.1')`];
    const guarded = { bwrap: isolation.bwrap, doors: [{ port, socket: join(home, 'temporal.sock') }], file: process.execPath, args: server };
    const behind = spawn(process.execPath, isolation.kind === 'bubblewrap' ? [GUARD, JSON.stringify(guarded)] : server, { stdio: 'ignore' });
    onTestFinished(() => void behind.kill());
    const answers = (): Promise<boolean> => fetch(`http://127.0.0.1:${port}`).then(async (reply) => (await reply.text()) === token, () => false);
    await until(answers);
    return printsWith(shell(isolation, sandbox, `curl -s http://127.0.0.1:${port}`, { network: { kind: 'host' } }), token);
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

const GUARD = fileURLToPath(new URL('../../cli/temporal/guard.ts', import.meta.url));

const SHARED = ['/tmp', '/var/tmp', '/dev/shm'];

const run = ({ isolation, sandbox }: World, script: string) => shell(isolation, sandbox, script);

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' ? (address?.port ?? 0) : 0;
}

/** Connects to a listener on this machine's loopback. */
async function connects({ isolation, sandbox }: World, network: Network): Promise<boolean> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : 0;
  return (await shell(isolation, sandbox, `: < /dev/tcp/127.0.0.1/${port}`, { network })).exitCode === 0;
}

async function prints(world: World, script: string, proof: string): Promise<boolean> {
  return printsWith(run(world, script), proof);
}

async function printsWith(running: Promise<ProcessResult>, proof: string): Promise<boolean> {
  return (await running).stdout.includes(proof);
}

async function withCommandLine(argument: string): Promise<number[]> {
  const lines = await Promise.all(
    processTable().map(async ({ pid }) => ({ pid, line: await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '') })),
  );
  return lines.filter(({ line }) => line.split('\0').includes(argument)).map(({ pid }) => pid);
}

const all = await isolations();
const forms = all.map((isolation) => ({ form: `${isolation.kind}`, isolation }));
for (const isolation of all.slice(0, 1)) forms.push({ form: `${isolation.kind} without seccomp and cgroups`, isolation: { ...isolation, seccomp: null, cgroup: null } });

describe.each(forms)('$form', ({ isolation }) => {
  const folder = temporaryHome();
  let world: World;

  beforeAll(async () => {
    const { home } = await folder;
    const token = randomUUID();
    const sandbox = await sandboxWith(home, {});
    const other = await sandboxWith(home, { 'theirs.txt': token }, undefined, 'other');
    await writeFile(join(home, 'readable.txt'), token);
    await mkdir(join(home, 'deployment'), { mode: 0o700 });
    await writeFile(join(home, 'deployment/temporal.db'), token);
    world = { isolation, home, sandbox, other, token, hostProcess: spawn('sleep', ['3600.25'], { stdio: 'ignore' }) };
  });

  afterAll(async () => {
    world.hostProcess.kill('SIGKILL');
    await (await folder)[Symbol.asyncDispose]();
  });

  test.each(statementsOf(isolation))('$sentence', async ({ name, held }) => {
    expect(await ATTEMPTS[name](world)).toBe(!held);
  });
});

test('the threat model says the same sentences', async () => {
  const document = await readFile(new URL('../../docs/threat-model.md', import.meta.url), 'utf8');
  expect(document).toContain(guaranteeRows().join('\n'));
});
