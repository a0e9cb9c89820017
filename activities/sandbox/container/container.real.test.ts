import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { readFile, readlink } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import Docker from 'dockerode';
import { pack } from 'tar-fs';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { REPOSITORY } from '../../../core/repository.ts';
import { agentFile } from '../../../core/run-config/agent-file.ts';
import { noPodman, startPodman, type Podman } from '../../../tests/support/harness/podman.ts';
import { temporaryHome, writeFiles } from '../../../tests/support/harness/sandbox-fixtures.ts';
import { loadTask } from '../../tasks/load-task.ts';
import { openBackend } from '../backends.ts';
import { compareView } from '../conformance/compare-view.ts';
import { requirePrograms } from '../conformance/require-programs.ts';
import { createSandbox } from '../create-sandbox.ts';
import { destroySandbox } from '../destroy-sandbox.ts';
import { SandboxError } from '../errors.ts';
import { judgeWork } from '../judge-work.ts';
import { loadAgent } from '../load-agent.ts';
import { placeTask } from '../place-task.ts';
import { agentCommand, runAgentProcess } from '../run-agent-process.ts';
import { sweepSandboxes } from '../sweep-sandboxes.ts';
import { textOf } from './host-image.ts';
import { commandThatIsMissing, LABELS } from './run-container.ts';

const signal = new AbortController().signal;
const BASE = 'localhost/trialgate-test-base:1';
const SETTINGS = { sandbox: { kind: 'container' }, verifier_sandbox: null } as const;
const skipped = noPodman() !== null;
let podman: Podman;
let docker: Docker;

beforeAll(async () => {
  if (skipped) return;
  podman = await startPodman(signal);
  vi.stubEnv('DOCKER_HOST', podman.host);
  docker = new Docker();
  await importBase();
});
afterEach(() => void vi.restoreAllMocks());
afterAll(async () => {
  vi.unstubAllEnvs();
  if (!skipped) await podman[Symbol.asyncDispose]();
});

/** Makes an image with a static shell alone: no Python, no library, nothing of this host. */
async function importBase(): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), 'trialgate-base-'));
  for (const folder of ['bin', 'tmp', 'etc']) mkdirSync(join(root, folder));
  cpSync(podman.busybox, join(root, 'bin/busybox'));
  for (const name of ['sh', 'cat', 'ls', 'echo', 'mkdir', 'ln', 'cp', 'id', 'wget', 'test', 'sleep', 'tail', 'rm'])
    symlinkSync('busybox', join(root, 'bin', name));
  writeFileSync(join(root, 'bin/bash'), '#!/bin/sh\nexec /bin/sh "$@"\n');
  chmodSync(join(root, 'bin/bash'), 0o755);
  const reply = await docker.importImage(Readable.from(pack(root)));
  const { status } = JSON.parse((await textOf(reply)).trim().split('\n').at(-1) ?? '{}');
  await docker.getImage(String(status)).tag({ repo: 'localhost/trialgate-test-base', tag: '1' });
  rmSync(root, { recursive: true });
}

async function taskIn(home: string, files: Record<string, string>) {
  const folder = join(home, 'image-task');
  await writeFiles(folder, { 'task.toml': '', 'instruction.md': 'Do it.', 'tests/test.sh': 'exit 1', ...files });
  return loadTask(folder, { hasImages: true });
}

/** Runs a shell command as the agent of a task, then judges its work. */
async function trialOf(
  home: string,
  task: Awaited<ReturnType<typeof taskIn>>,
  command: string,
  gateway = 'http://127.0.0.1:9',
) {
  const { backend, image } = await placeTask(task, SETTINGS, { home, signal });
  const key = { home, trialId: 't', attempt: 1, backend };
  const agent = await loadAgent(agentFile.parse({ command: ['sh', '-c', command] }));
  try {
    const sandbox = await createSandbox({ ...key, task, image });
    const agentRun = {
      agent,
      task,
      sandbox,
      backend,
      gateway,
      trialId: 't',
      network: 'gateway' as const,
      apiKey: 'k',
      model: 'm',
      signal,
    };
    const { process: ended } = await runAgentProcess(agentRun);
    return { ended, sandbox, verdict: await judgeWork({ task, sandbox, backend, signal }) };
  } finally {
    await destroySandbox(key);
  }
}

/** A program of this host without a network. */
const programOf = (argv: string[]) => ({
  argv,
  cwd: '/app',
  env: { PATH: '/usr/bin:/bin', HOME: '/home/agent' },
  limits: { seconds: 600, memoryMb: 128, outputBytes: 100_000, processes: 8, cpus: 1, storageMb: 64 },
  mounts: [],
  network: { kind: 'none' } as const,
  signal,
});

/** Writes the record of a worker whose process does not exist. */
async function ownedByDead(home: string, name: string): Promise<void> {
  const owner = join(home, 'sandboxes/.owners', name);
  writeFileSync(owner, JSON.stringify({ ...JSON.parse(await readFile(owner, 'utf8')), pid: 2 ** 22 - 1 }));
}

/** An empty sandbox of this host's programs, which is removed in the end. */
async function hostSandbox() {
  const folder = await temporaryHome();
  const backend = await openBackend({ kind: 'container' });
  const sandbox = await backend.start({ home: folder.home, name: 't.1', image: null });
  await backend.copyIn(sandbox);
  const filters = { label: [`${LABELS.sandbox}=${sandbox.marker}`] };
  const containers = () => docker.listContainers({ all: true, filters });
  const remove = async (): Promise<void> => {
    await backend.destroy(folder.home, 't.1');
    await folder[Symbol.asyncDispose]();
  };
  return { home: folder.home, backend, sandbox, containers, [Symbol.asyncDispose]: remove };
}

/** The methods of all containers, so that a test can let one of them fail. */
const methods = (): Docker.Container => Object.getPrototypeOf(docker.getContainer('any'));

const BUILT = {
  'environment/Dockerfile': `FROM ${BASE}\nWORKDIR /work\nENV GREETING=hello\nCOPY data.txt data.txt\nRUN echo built > built.txt && ln -s built.txt link && mkdir -p /opt && echo tool > /opt/tool\n`,
  'environment/data.txt': 'data',
  'tests/test.sh': `if test "$(cat answer.txt)" = "hello built data tool" && test "$(cat link)" = built; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
`,
};

it.skipIf(skipped)(
  'a task runs in the image of its Dockerfile, and its work is judged in a clean container of that image',
  async () => {
    await using folder = await temporaryHome();
    const task = await taskIn(folder.home, BUILT);
    const { ended, verdict } = await trialOf(
      folder.home,
      task,
      'echo "$GREETING $(cat link) $(cat data.txt) $(cat /opt/tool)" > answer.txt; ls /; pwd',
    );
    expect(ended).toMatchObject({ exitCode: 0, stdout: expect.stringContaining('/work') });
    expect(ended.stdout).not.toContain('usr');
    expect(verdict.rewards).toEqual({ reward: 1 });
    const reports: string[] = [];
    await placeTask(task, SETTINGS, { home: folder.home, signal, report: (line) => reports.push(line) });
    expect(reports).toEqual([]);
  },
);

it.skipIf(skipped)('an image that was built for a task can be found by its label', async () => {
  await using folder = await temporaryHome();
  const { image } = await placeTask(await taskIn(folder.home, BUILT), SETTINGS, { home: folder.home, signal });
  const found = await docker.listImages({ filters: { label: ['trialgate.image=task'] } });
  expect(found.map(({ Id }) => Id)).toContain(image?.id);
});

it.skipIf(skipped)(
  'a link that the agent made is not followed by the tests, and work that only links is not rewarded',
  async () => {
    await using folder = await temporaryHome();
    const task = await taskIn(folder.home, { ...BUILT, 'tests/answer': 'hello built data tool' });
    const { verdict } = await trialOf(folder.home, task, 'ln -s /tests/answer answer.txt');
    expect(verdict.rewards).toEqual({ reward: 0 });
  },
);

it.skipIf(skipped)('an agent in an image without Python reaches the gateway, and nothing else', async () => {
  await using folder = await temporaryHome();
  const gateway = createServer((_, response) => response.end('from the gateway'));
  await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
  const address = gateway.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  try {
    const task = await taskIn(folder.home, BUILT);
    const command = 'wget -q -O - "$OPENAI_BASE_URL/models"; wget -T 20 -q -O - http://1.1.1.1/ && echo reached';
    const { ended } = await trialOf(folder.home, task, command, `http://127.0.0.1:${port}`);
    expect(ended.stdout).toBe('from the gateway');
  } finally {
    gateway.close();
  }
});

it.skipIf(skipped)(
  'an agent in an image sees the files and variables that are explained beforehand, and no others',
  async () => {
    await using folder = await temporaryHome();
    const task = await taskIn(folder.home, BUILT);
    const { backend, image } = await placeTask(task, SETTINGS, { home: folder.home, signal });
    const key = { home: folder.home, trialId: 't', attempt: 1, backend };
    try {
      const sandbox = await createSandbox({ ...key, task, image });
      const [gateway, network] = ['http://gateway.test:8700', 'gateway'] as const;
      const agent = await loadAgent(agentFile.parse({ command: ['true'], instruction: 'stdin' }));
      const run = { agent, task, sandbox, backend, gateway, trialId: 't', network, apiKey: 'k', model: 'm', signal };
      expect(await compareView(backend, sandbox, await agentCommand(run))).toEqual([]);
    } finally {
      await destroySandbox(key);
    }
  },
);

it.skipIf(skipped)('a Dockerfile that cannot be built is refused with its file and what the engine said', async () => {
  await using folder = await temporaryHome();
  const task = await taskIn(folder.home, { 'environment/Dockerfile': `FROM ${BASE}\nRUN echo broken >&2; exit 3\n` });
  await expect(placeTask(task, SETTINGS, { home: folder.home, signal })).rejects.toThrow(
    /environment\/Dockerfile: the image cannot be built: .*(exit status 3|non-zero|code: 3)/s,
  );
});

it.skipIf(skipped)('an image that no registry has is refused by its name', async () => {
  await using folder = await temporaryHome();
  const task = await taskIn(folder.home, {
    'task.toml': '[environment]\ndocker_image = "localhost:1/nowhere/image:1"',
  });
  await expect(placeTask(task, SETTINGS, { home: folder.home, signal })).rejects.toThrow(
    'the image localhost:1/nowhere/image:1 cannot be fetched',
  );
});

it.skipIf(skipped)('the containers of a worker that was killed are ended and removed by the next one', async () => {
  await using folder = await temporaryHome();
  const task = await taskIn(folder.home, BUILT);
  const backend = await openBackend({ kind: 'container' });
  const key = { home: folder.home, trialId: 'lost', attempt: 1, backend };
  const sandbox = await createSandbox({ ...key, task, image: null });
  const network = { kind: 'gateway', url: 'http://127.0.0.1:9', folder: sandbox.root } as const;
  const running = backend.run(sandbox, { ...programOf(['sleep', '4799']), network }).then(
    ({ reason }) => reason,
    () => 'lost',
  );
  const filters = { label: [`${LABELS.name}=lost.1`] };
  await vi.waitFor(async () => expect(await docker.listContainers({ filters })).toHaveLength(2), { timeout: 120_000 });
  await ownedByDead(folder.home, 'lost.1');
  expect(await sweepSandboxes(folder.home)).toEqual(['lost.1']);
  expect(await docker.listContainers({ all: true, filters })).toEqual([]);
  await running;
});

it.skipIf(skipped)(
  'a program joins a relay that was started before it, or a new one when that has ended or leads elsewhere; none is left',
  async () => {
    await using held = await hostSandbox();
    const { backend, sandbox, home, containers } = held;
    const gateway = createServer((_, response) => response.end('from the gateway'));
    await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
    const address = gateway.address();
    const url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
    const network = { kind: 'gateway', url, folder: sandbox.root } as const;
    const argv = ['python3', '-c', `import urllib.request as r; print(r.urlopen('${url}').read().decode())`];
    const made = vi.spyOn(Docker.prototype, 'createContainer');
    /** Runs the program. Returns the number of containers that were made for it. */
    const run = async (): Promise<number> => {
      const before = made.mock.calls.length;
      expect(await backend.run(sandbox, { ...programOf(argv), network })).toMatchObject({
        stdout: 'from the gateway\n',
      });
      expect(await containers()).toEqual([]);
      return made.mock.calls.length - before;
    };
    try {
      await backend.startAhead?.(sandbox, network, signal);
      expect(await containers()).toHaveLength(1);
      expect(await run()).toBe(1);
      await backend.startAhead?.(sandbox, { ...network, url: 'http://127.0.0.1:9' }, signal);
      expect(await run()).toBe(2);
      await backend.startAhead?.(sandbox, network, signal);
      for (const { Id } of await containers()) await docker.getContainer(Id).kill();
      expect(await run()).toBe(2);
      await backend.startAhead?.(sandbox, network, signal);
      await backend.destroy(home, 't.1');
      expect(await containers()).toEqual([]);
    } finally {
      gateway.close();
    }
  },
);

it.skipIf(skipped)('what a killed worker had started before its trials is removed by the next one', async () => {
  await using folder = await temporaryHome();
  const { home } = folder;
  const script = `
    const { openBackend } = await import(${JSON.stringify(join(REPOSITORY, 'activities/sandbox/backends.ts'))});
    const backend = await openBackend({ kind: 'container' });
    const sandbox = await backend.start({ home: ${JSON.stringify(home)}, name: 'warm-lost.1', image: null });
    await backend.startAhead(sandbox, { kind: 'gateway', url: 'http://127.0.0.1:9', folder: sandbox.root }, new AbortController().signal);
    console.log('started');
    setInterval(() => {}, 1000);`;
  const worker = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(worker, 'exit');
  await Promise.race([once(worker.stdout, 'data'), ended]);
  const filters = { label: [`${LABELS.name}=warm-lost.1`] };
  expect(await docker.listContainers({ filters })).toHaveLength(1);
  worker.kill('SIGKILL');
  await ended;
  expect(await sweepSandboxes(home)).toEqual(['warm-lost.1']);
  expect(await docker.listContainers({ all: true, filters })).toEqual([]);
  expect(existsSync(join(home, 'sandboxes/warm-lost.1'))).toBe(false);
});

it.skipIf(skipped)('a copy of an image’s work folder keeps its links', async () => {
  await using folder = await temporaryHome();
  const task = await taskIn(folder.home, BUILT);
  const { image } = await placeTask(task, SETTINGS, { home: folder.home, signal });
  expect(await readlink(join(image?.files ?? '', 'link'))).toBe('built.txt');
});

it.skipIf(skipped)(
  'a sandbox whose containers cannot be listed keeps its folder and record for a later sweep',
  async () => {
    await using held = await hostSandbox();
    const { home, backend, sandbox } = held;
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    vi.spyOn(Docker.prototype, 'listContainers').mockRejectedValueOnce(new Error('no room'));
    await backend.destroy(home, 't.1');
    expect(existsSync(sandbox.root)).toBe(true);
    await ownedByDead(home, 't.1');
    vi.stubEnv('DOCKER_HOST', 'unix:///nowhere/engine.sock');
    expect(await sweepSandboxes(home)).toEqual([]);
    expect(existsSync(sandbox.root)).toBe(true);
    expect(said.mock.calls.join('\n')).toMatch(/containers are left: .*no room[^]*kind container cannot be asked/);
    vi.stubEnv('DOCKER_HOST', podman.host);
    expect(await sweepSandboxes(home)).toEqual(['t.1']);
    expect(existsSync(sandbox.root)).toBe(false);
  },
);

it.skipIf(skipped)('a container whose sandbox has no record any more is removed by a sweep', async () => {
  await using held = await hostSandbox();
  const { home, backend, sandbox, containers } = held;
  const running = backend.run(sandbox, programOf(['sleep', '4797'])).catch(() => null);
  await vi.waitFor(async () => expect(await containers()).toHaveLength(1), { timeout: 120_000 });
  rmSync(join(home, 'sandboxes/.owners/t.1'));
  expect(await sweepSandboxes(home)).toEqual(['t.1']);
  expect(await containers()).toEqual([]);
  await running;
});

it.skipIf(skipped)('a run fails when its container cannot be removed', async () => {
  await using held = await hostSandbox();
  const { backend, sandbox } = held;
  const remove = vi.spyOn(methods(), 'remove').mockRejectedValue(new Error('busy'));
  await expect(backend.run(sandbox, programOf(['true']))).rejects.toThrow(/removing the container .*busy/);
  remove.mockRestore();
});

it.skipIf(skipped)('a program is killed again when the engine refused once', async () => {
  await using held = await hostSandbox();
  const { backend, sandbox } = held;
  const kill = vi.spyOn(methods(), 'kill').mockRejectedValueOnce(new Error('busy'));
  const { limits, ...program } = programOf(['sleep', '4796']);
  const ended = await backend.run(sandbox, { ...program, limits: { ...limits, seconds: 1 } });
  expect(ended).toMatchObject({ reason: 'timed_out' });
  expect(kill.mock.calls.length).toBeGreaterThan(1);
  kill.mockRestore();
});

it.skipIf(skipped)('removing a sandbox ends a program that is about to start in it', async () => {
  await using held = await hostSandbox();
  const { home, backend, sandbox, containers } = held;
  const network = { kind: 'gateway', url: 'http://127.0.0.1:9', folder: sandbox.root } as const;
  const running = backend.run(sandbox, { ...programOf(['sleep', '4795']), network });
  await vi.waitFor(async () => expect(await containers()).not.toEqual([]), { timeout: 120_000, interval: 5 });
  await backend.destroy(home, 't.1');
  expect(await running).toMatchObject({ reason: 'cancelled' });
  expect(await containers()).toEqual([]);
});

it.skipIf(skipped)('a program of this host has the files of /etc that it needs, such as the links of awk', async () => {
  await using held = await hostSandbox();
  const { backend, sandbox } = held;
  const argv = ['sh', '-c', `awk 'BEGIN{print 1}'; ls /etc/ssl/certs | head -c 1 | wc -c`];
  expect(await backend.run(sandbox, programOf(argv))).toMatchObject({ stdout: '1\n1\n', stderr: '' });
  expect(await compareView(backend, sandbox, programOf(['true']))).toEqual([]);
});

it.skipIf(skipped)('the image of this host’s programs is made again when somebody has removed it', async () => {
  await using held = await hostSandbox();
  const { backend, sandbox } = held;
  expect(await backend.run(sandbox, programOf(['true']))).toMatchObject({ exitCode: 0 });
  const images = await docker.listImages({ filters: { reference: ['localhost/trialgate-host'] } });
  expect(images).toHaveLength(1);
  await docker.getImage(images[0]?.Id ?? '').remove({ force: true });
  expect(await backend.run(sandbox, programOf(['true']))).toMatchObject({ exitCode: 0 });
});

it.skipIf(skipped)('a program’s output is whole when podman loses the connection to it', async () => {
  await using held = await hostSandbox();
  const { backend, sandbox } = held;
  const message = Buffer.from('Error: read unixpacket @->/attach: read: connection reset by peer\n');
  const header = Buffer.from([2, 0, 0, 0, 0, 0, 0, message.length]);
  const lost = new PassThrough();
  lost.end(Buffer.concat([header, message]));
  const attach = vi.spyOn(methods(), 'attach').mockImplementationOnce(() => Promise.resolve(lost));
  const ended = await backend.run(sandbox, programOf(['sh', '-c', 'echo out; echo error >&2']));
  expect(ended).toMatchObject({ exitCode: 0, stdout: 'out\n', stderr: 'error\n' });
  attach.mockRestore();
});

it('only an error of execution says that a command is missing', () => {
  const refused = (message: string): string | null =>
    commandThatIsMissing(new SandboxError(message, { cause: Object.assign(new Error(), { statusCode: 500 }) }));
  for (const message of [
    'runc create failed: unable to start container process: exec: "nope": executable file not found in $PATH: unknown',
    'unable to start container process: exec: "/app/run": permission denied',
    'crun: executable file `nope` not found in $PATH: No such file or directory: OCI runtime attempted to invoke a command that was not found',
  ])
    expect(refused(message)).toBe(message);
  for (const message of [
    'crun: mount `/data` to `app`: No such file or directory: OCI runtime attempted to invoke a command that was not found',
    'failed to create shim task: open /sys/fs/cgroup/x/memory.max: no such file or directory',
    'error running hook #0: fork/exec /usr/bin/hook: no such file or directory',
    'network bridge not found',
  ])
    expect(refused(message)).toBeNull();
});

it.skipIf(skipped)(
  'an engine is asked for its version once, and again after a connection to it has failed',
  async () => {
    const version = vi.spyOn(Docker.prototype, 'version');
    await using held = await hostSandbox();
    const { home, backend } = held;
    await openBackend({ kind: 'container' });
    const before = version.mock.calls.length;
    expect(before).toBeLessThan(2);
    vi.spyOn(console, 'error').mockImplementation(() => {});
    vi.spyOn(Docker.prototype, 'listContainers').mockRejectedValueOnce(new Error('socket hang up'));
    await backend.destroy(home, 't.1');
    await openBackend({ kind: 'container' });
    expect(version.mock.calls.length).toBe(before + 1);
  },
);

it.skipIf(skipped)('an image without `python3` is refused before the checks of a kind are tried with it', async () => {
  await using folder = await temporaryHome();
  const backend = await openBackend({ kind: 'container' });
  const image = await backend.prepare({ name: BASE }, { home: folder.home, signal, report: () => {} });
  await expect(requirePrograms(backend, { home: folder.home, image, signal })).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining('ended in the image with exit code 127'),
  });
});

it.skipIf(skipped)('a cancelled caller does not wait for an engine that gives no answer', async () => {
  const silent = createServer(() => {});
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const address = silent.address();
  vi.stubEnv('DOCKER_HOST', `tcp://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`);
  try {
    await expect(openBackend({ kind: 'container' }, AbortSignal.timeout(200))).rejects.toThrow('timeout');
  } finally {
    vi.stubEnv('DOCKER_HOST', podman.host);
    silent.closeAllConnections();
    silent.close();
  }
});

it.skipIf(skipped)('a program that passes its own limit of memory ends as out of memory', async () => {
  await using held = await hostSandbox();
  const { backend, sandbox } = held;
  const script = "x=[]\nfor i in range(64): x.append(b'a'*(16<<20))";
  const ended = await backend.run(sandbox, programOf(['python3', '-c', script]));
  expect(ended).toMatchObject({ reason: 'out_of_memory', hitMemoryLimit: true });
});

it.skipIf(skipped)('a program that is out of memory before the engine tells of its process is told so', async () => {
  await using held = await hostSandbox();
  const { backend, sandbox } = held;
  vi.spyOn(methods(), 'inspect').mockImplementationOnce(async () => {
    await new Promise((resolve) => setTimeout(resolve, 3000));
    throw Object.assign(new Error('open /proc/1/cgroup: no such file'), { statusCode: 500 });
  });
  const script = "x=[]\nfor i in range(64): x.append(b'a'*(16<<20))";
  const ended = await backend.run(sandbox, programOf(['python3', '-c', script]));
  expect(ended).toMatchObject({ reason: 'out_of_memory', hitMemoryLimit: true });
});
