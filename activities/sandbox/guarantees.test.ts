import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { Sandbox } from './create-sandbox.ts';
import { guaranteeRows, statementsOf, type GuaranteeName } from './guarantees.ts';
import type { Isolation } from './isolation.ts';
import type { Network } from './network.ts';
import { processTable } from './process-table.ts';
import { isolations, sandboxWith, shell, specOf, temporaryHome } from './testing/fixtures.ts';

/** What an attempt has at hand: a sandbox, another one, and things of the host that it should not reach. */
type World = { isolation: Isolation; home: string; sandbox: Sandbox; other: Sandbox; hostProcess: ChildProcess; token: string };

/** Tries to break one guarantee from inside of a sandbox; true when it got through. */
const ATTEMPTS: Record<GuaranteeName, (world: World) => Promise<boolean>> = {
  hostFiles: (world) => prints(world, `cat ${world.home}/readable.txt`, world.token),
  deploymentFiles: (world) => prints(world, `cat ${world.home}/deployment/temporal.db`, world.token),
  otherSandboxes: async (world) => {
    const file = join(world.other.work, 'theirs.txt');
    const read = await prints(world, `cat ${file}; echo changed > ${file}; ls ${world.other.root}`, world.token);
    return read || !(await readFile(file, 'utf8')).includes(world.token);
  },
  processesSeen: (world) => prints(world, `tr '\\0' '\\n' < /proc/${world.hostProcess.pid}/cmdline`, '3600.25'),
  // Signal 0 asks for the right to signal and does nothing.
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
  // Without a filter the kernel knows the call, and finds fault with its arguments.
  systemCalls: (world) =>
    prints(world, `python3 -c 'import ctypes, errno; c = ctypes.CDLL(None, use_errno=True); c.syscall(435, 0, 0); print(errno.errorcode[ctypes.get_errno()])'`, 'EINVAL'),
  descriptors: async ({ isolation, home, sandbox, token }) => {
    const { signal: _, ...spec } = specOf(isolation, sandbox, 'cat <&20');
    const code = `
      import { launch } from ${JSON.stringify(new URL('./launcher.ts', import.meta.url).href)};
      const { stdout } = await launch({ ...${JSON.stringify(spec)}, signal: new AbortController().signal });
      console.log(stdout);`;
    // A worker that inherits a descriptor above those that Node closes by itself.
    const opened = ['-c', 'exec 20< "$0"; exec "$@"', join(home, 'readable.txt'), process.execPath];
    const { stdout } = await promisify(execFile)('bash', [...opened, '--input-type=module', '-e', code]);
    return stdout.includes(token);
  },
  agentNetwork: async (world) => connects(world, { kind: 'gateway', url: 'http://127.0.0.1:1', folder: world.sandbox.root }),
  verifierNetwork: (world) => connects(world, { kind: 'none' }),
};

const SHARED = ['/tmp', '/var/tmp', '/dev/shm'];

const run = ({ isolation, sandbox }: World, script: string) => shell(isolation, sandbox, script);

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
  return (await run(world, script)).stdout.includes(proof);
}

async function withCommandLine(argument: string): Promise<number[]> {
  const lines = await Promise.all(
    processTable().map(async ({ pid }) => ({ pid, line: await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '') })),
  );
  return lines.filter(({ line }) => line.split('\0').includes(argument)).map(({ pid }) => pid);
}

describe.each(await isolations())('$kind', (isolation) => {
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
