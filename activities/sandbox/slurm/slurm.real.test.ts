import { execFile, spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { agentFile } from '../../../core/run-config/agent-file.ts';
import { REPOSITORY } from '../../../core/repository.ts';
import { taskWith, temporaryHome } from '../../../tests/support/harness/sandbox-fixtures.ts';
import { noSlurm, startSlurm, type Slurm } from '../../../tests/support/harness/slurm.ts';
import { until } from '../../../tests/support/harness/until.ts';
import type { Command, SandboxBackend } from '../backend.ts';
import { openBackend } from '../backends.ts';
import { createSandbox } from '../create-sandbox.ts';
import { destroySandbox } from '../destroy-sandbox.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import { SandboxError } from '../errors.ts';
import { isolation } from '../isolation.ts';
import { judgeWork } from '../judge-work.ts';
import { loadAgent } from '../load-agent.ts';
import { runAgentProcess } from '../run-agent-process.ts';
import { sweepSandboxes } from '../sweep-sandboxes.ts';

const signal = new AbortController().signal;
const skipped = noSlurm() !== null || (await isolation()).kind !== 'bubblewrap';
const test = it.skipIf(skipped);
let slurm: Slurm;
let backend: SandboxBackend;
const path = process.env.PATH ?? '';

beforeAll(async () => {
  if (skipped) return;
  slurm = await startSlurm(signal);
  vi.stubEnv('PATH', `${slurm.bin}:${path}`);
  backend = await openBackend({ kind: 'slurm' });
});
afterEach(() => {
  if (!skipped) vi.stubEnv('PATH', `${slurm.bin}:${path}`);
});
afterAll(async () => {
  vi.unstubAllEnvs();
  if (!skipped) await slurm[Symbol.asyncDispose]();
});

const LIMITS = { seconds: 120, memoryMb: 128, outputBytes: 10_000, processes: 16, cpus: 1, storageMb: 64 };

const shell = (sandbox: Sandbox, script: string, more: Partial<Command> = {}): ReturnType<SandboxBackend['run']> =>
  backend.run(sandbox, {
    argv: ['sh', '-c', script],
    cwd: '/app',
    env: { PATH: '/usr/bin:/bin' },
    limits: LIMITS,
    mounts: [],
    network: { kind: 'none' },
    signal,
    ...more,
  });

/** Starts an empty sandbox in a deployment of its own. */
async function emptySandbox(name = 't.1'): Promise<{ sandbox: Sandbox; home: string } & AsyncDisposable> {
  const folder = await temporaryHome();
  const sandbox = await backend.start({ home: folder.home, name, image: null });
  await backend.copyIn(sandbox);
  return {
    sandbox,
    home: folder.home,
    [Symbol.asyncDispose]: async () => {
      await backend.destroy(folder.home, name);
      await folder[Symbol.asyncDispose]();
    },
  };
}

const jobs = async (...more: string[]): Promise<string[]> =>
  (await slurm.ask('squeue', '--noheader', '--format=%i %T', ...more)).split('\n').filter(Boolean);
const runningJob = (): Promise<string> => until(async () => (await jobs('--states=RUNNING'))[0]?.split(' ')[0], 60_000);

test('an agent works in a job and reaches the gateway, and its work is judged in another job', async () => {
  await using folder = await temporaryHome();
  const gateway = createServer((_, response) => response.end('x'.repeat(3_000_000)));
  gateway.listen(0, '127.0.0.1');
  await once(gateway, 'listening');
  const address = gateway.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const { home } = folder;
  const task = await taskWith(
    home,
    'if test "$(cat answer.txt)" = 3000000; then echo 1; else echo 0; fi > /logs/verifier/reward.txt',
  );
  const program =
    'import os, urllib.request; print(len(urllib.request.urlopen(os.environ["OPENAI_BASE_URL"] + "/models").read()))';
  const agent = await loadAgent(agentFile.parse({ command: ['sh', '-c', `python3 -c '${program}' > answer.txt`] }));
  const key = { home, trialId: 't', attempt: 1, backend };
  try {
    const sandbox = await createSandbox({ ...key, task, image: null });
    const { process: ended } = await runAgentProcess({
      agent,
      task,
      sandbox,
      backend,
      gateway: `http://127.0.0.1:${port}`,
      trialId: 't',
      network: 'gateway',
      apiKey: 'k',
      model: 'm',
      signal,
    });
    expect(ended).toMatchObject({ reason: 'exited', exitCode: 0, gatewayFailures: 0 });
    expect((await judgeWork({ task, sandbox, backend, signal })).rewards).toEqual({ reward: 1 });
    expect(readdirSync(sandbox.root).filter((name) => name.startsWith('job-'))).toEqual([]);
  } finally {
    await destroySandbox(key);
    gateway.close();
  }
  expect(await jobs()).toEqual([]);
});

test('the jobs of a worker that was killed are ended by the next one', async () => {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'exit 1');
  const sandbox = await createSandbox({ home: folder.home, trialId: 'lost', attempt: 1, backend, task, image: null });
  // The next worker finds this job, of whose srun it knows nothing.
  const srun = spawn(
    join(slurm.bin, 'srun'),
    ['--quiet', '--export=NONE', `--job-name=trialgate:${sandbox.marker}:lost`, '/bin/sleep', '4821'],
    { stdio: 'ignore' },
  );
  const ended = once(srun, 'exit');
  await runningJob();
  // The record of a worker whose process does not exist.
  const owner = join(folder.home, 'sandboxes/.owners/lost.1');
  writeFileSync(owner, JSON.stringify({ ...JSON.parse(await readFile(owner, 'utf8')), pid: 2 ** 22 - 1 }));
  expect(await sweepSandboxes(folder.home)).toEqual(['lost.1']);
  expect(await jobs()).toEqual([]);
  await ended;
});

test('when a worker is killed, its job ends', async () => {
  await using folder = await temporaryHome();
  const program = `
    const { openBackend } = await import(${JSON.stringify(join(REPOSITORY, 'activities/sandbox/backends.ts'))});
    const backend = await openBackend({ kind: 'slurm' });
    const sandbox = await backend.start({ home: process.argv[1], name: 'killed.1', image: null });
    await backend.copyIn(sandbox);
    await backend.run(sandbox, { argv: ['sleep', '4822'], cwd: '/app', env: { PATH: '/usr/bin:/bin' }, limits: ${JSON.stringify(LIMITS)},
      mounts: [], network: { kind: 'none' }, signal: new AbortController().signal });`;
  const worker = spawn(process.execPath, ['--input-type=module', '--eval', program, folder.home], { stdio: 'ignore' });
  const ended = once(worker, 'exit');
  await runningJob();
  worker.kill('SIGKILL');
  await ended;
  await until(async () => (await jobs()).length === 0, 60_000);
  await backend.destroy(folder.home, 'killed.1');
});

test('the time in the queue does not count, and a program that waits there can be cancelled and does not run', async () => {
  await using one = await emptySandbox();
  const stop = new AbortController();
  const all = { ...LIMITS, cpus: 64 };
  const first = shell(one.sandbox, 'sleep 4823', { limits: all, signal: stop.signal });
  await runningJob();
  const cancel = new AbortController();
  const cancelled = shell(one.sandbox, 'echo ran', { limits: all, signal: cancel.signal });
  const waiting = shell(one.sandbox, 'sleep 1; echo ran', { limits: { ...all, seconds: 8 } });
  await until(async () => (await jobs('--states=PENDING')).length === 2, 60_000);
  cancel.abort();
  expect(await cancelled).toMatchObject({ reason: 'cancelled', stdout: '' });
  // The other one has waited longer than its limit of time.
  await new Promise((resolve) => setTimeout(resolve, 9000));
  stop.abort();
  expect(await first).toMatchObject({ reason: 'cancelled' });
  expect(await waiting).toMatchObject({ reason: 'exited', exitCode: 0, stdout: 'ran\n' });
});

test('a cancel at any moment of a job’s start ends it and leaves no job', async () => {
  await using one = await emptySandbox();
  for (const delay of [0, 5, 10, 20, 40, 60, 80, 100, 130, 160, 200, 300]) {
    const cancel = new AbortController();
    const running = shell(one.sandbox, 'sleep 4825', { signal: cancel.signal });
    await new Promise((resolve) => setTimeout(resolve, delay));
    cancel.abort();
    expect(await running).toMatchObject({ reason: 'cancelled' });
    expect(await jobs()).toEqual([]);
  }
});

test('a program that passes its memory limit with memory that it shares is ended by the kernel', async ({ skip }) => {
  if (!backend.capabilities.kernelLimits.memory) skip('SLURM holds no memory limit here');
  await using one = await emptySandbox();
  const program = 'import mmap; m = mmap.mmap(-1, 1 << 30); [m.write(b"a" * (1 << 20)) for _ in range(1024)]';
  const result = await shell(one.sandbox, `python3 -c '${program}'`);
  expect(result).toMatchObject({ reason: 'out_of_memory', hitMemoryLimit: true, exitCode: 137 });
});

test('a program whose child alone passes the limit is told so by the child’s signal', async ({ skip }) => {
  if (!backend.capabilities.kernelLimits.memory) skip('SLURM holds no memory limit here');
  await using one = await emptySandbox();
  const program = 'import mmap; m = mmap.mmap(-1, 1 << 30); [m.write(b"a" * (1 << 20)) for _ in range(1024)]';
  const result = await shell(one.sandbox, `python3 -c '${program}'; echo "$?"; exit 3`);
  expect(result).toMatchObject({ reason: 'exited', exitCode: 3, stdout: '137\n', oomKills: 1 });
});

test('a program that kills itself or exits with SLURM’s own codes is not taken for a failure of SLURM', async () => {
  await using one = await emptySandbox();
  for (const exitCode of [1, 96, 125, 137, 143])
    expect(await shell(one.sandbox, `exit ${exitCode}`)).toMatchObject({ reason: 'exited', exitCode, stderr: '' });
  expect(await shell(one.sandbox, 'kill -KILL $$')).toMatchObject({ reason: 'exited', exitCode: 137 });
});

test('a job that its operator cancels is the host’s failure, with what SLURM says', async () => {
  await using one = await emptySandbox();
  const printed = new EventEmitter();
  const onOutput = (): unknown => printed.emit('output');
  const running = shell(one.sandbox, 'echo up; sleep 4824', { onOutput }).catch((error: unknown) => error);
  await once(printed, 'output');
  await slurm.ask('scancel', await runningJob());
  const error = await running;
  expect(error).toBeInstanceOf(SandboxError);
  expect(String(error)).toContain('SLURM ended the job (CANCELLED)');
});

test('a job that SLURM refuses is the host’s failure, with what SLURM says', async () => {
  await using one = await emptySandbox();
  const limits = { ...LIMITS, memoryMb: 10_000_000 };
  await expect(shell(one.sandbox, 'true', { limits })).rejects.toThrow(
    /SLURM could not start the job.*Memory specification can not be satisfied/s,
  );
});

test('a worker that is itself a job starts jobs of their own', async () => {
  vi.stubEnv('SLURM_JOB_ID', '4711');
  vi.stubEnv('SLURM_JOBID', '4711');
  await using one = await emptySandbox();
  const inside = await openBackend({ kind: 'slurm' });
  vi.stubEnv('SLURM_JOB_ID', undefined);
  vi.stubEnv('SLURM_JOBID', undefined);
  const result = await inside.run(one.sandbox, {
    ...{ argv: ['true'], cwd: '/app', env: {}, limits: LIMITS, mounts: [], network: { kind: 'none' }, signal },
  });
  expect(result).toMatchObject({ reason: 'exited', exitCode: 0 });
});

test('the options of a run file reach srun', async () => {
  const chosen = await openBackend({ kind: 'slurm', partition: 'main', options: ['--comment=from-a-run-file'] });
  await using one = await emptySandbox();
  const running = chosen.run(one.sandbox, {
    ...{ argv: ['sleep', '2'], cwd: '/app', env: { PATH: '/usr/bin:/bin' }, limits: LIMITS, mounts: [], signal },
    network: { kind: 'none' },
  });
  await runningJob();
  expect(await slurm.ask('squeue', '--noheader', '--format=%k %P')).toBe('from-a-run-file main\n');
  await running;
});

test('a partition that the cluster does not have is refused by its name', async () => {
  await expect(openBackend({ kind: 'slurm', partition: 'nowhere' })).rejects.toThrow(
    'sandbox.partition: SLURM has no partition "nowhere" with nodes',
  );
});

it('a host without SLURM is told what is missing', async () => {
  vi.stubEnv('PATH', '/nowhere');
  await expect(openBackend({ kind: 'slurm' })).rejects.toThrow('`srun` is not on the PATH');
});

it('a node that does not see the deployment’s folder says so', async () => {
  const program = fileURLToPath(new URL('./node.py', import.meta.url));
  const { python } = await isolation();
  const refused = promisify(execFile)(python.executable, ['-I', '-S', program, '/nowhere/job.json']);
  await expect(refused).rejects.toMatchObject({
    code: 96,
    stderr: expect.stringMatching(/cannot read \/nowhere\/job.json .* file system that the worker and the nodes share/),
  });
});

it('a node that does not reach the worker’s port says so, before the program runs', async () => {
  await using folder = await temporaryHome();
  const closed = createServer().listen(0, '127.0.0.1');
  await once(closed, 'listening');
  const address = closed.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  closed.close();
  const job = join(folder.home, 'job.json');
  const common = { argv: ['/bin/echo', 'ran'], env: {}, seccomp: null, statusFd: 100, seccompFd: 101, sign: 's' };
  const tunnels = [{ port, token: 't', socket: 's' }];
  writeFileSync(job, JSON.stringify({ ...common, result: join(folder.home, 'result'), tunnels }));
  const program = fileURLToPath(new URL('./node.py', import.meta.url));
  const { python } = await isolation();
  await expect(promisify(execFile)(python.executable, ['-I', '-S', program, job])).rejects.toMatchObject({
    code: 96,
    stdout: '',
    stderr: expect.stringContaining(`cannot reach the worker at 127.0.0.1, port ${port}`),
  });
});
