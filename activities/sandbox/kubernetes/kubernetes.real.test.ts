import { writeFileSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pack } from 'tar-fs';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { agentFile } from '../../../core/run-config/agent-file.ts';
import { DEFAULT_POD_IMAGE } from '../../../core/run-config/sandbox.ts';
import { startKubernetes, type Kubernetes } from '../../../tests/support/harness/kubernetes.ts';
import { noPodman } from '../../../tests/support/harness/podman.ts';
import { temporaryHome, writeFiles } from '../../../tests/support/harness/sandbox-fixtures.ts';
import { until } from '../../../tests/support/harness/until.ts';
import { loadTask } from '../../tasks/load-task.ts';
import type { Command } from '../backend.ts';
import { openBackend } from '../backends.ts';
import { LIMITS } from '../conformance/context.ts';
import { createSandbox } from '../create-sandbox.ts';
import { destroySandbox } from '../destroy-sandbox.ts';
import { SandboxError } from '../errors.ts';
import { judgeWork } from '../judge-work.ts';
import { loadAgent } from '../load-agent.ts';
import { ownedNames } from '../owner.ts';
import { placeTask } from '../place-task.ts';
import { runAgentProcess } from '../run-agent-process.ts';
import { sweepSandboxes } from '../sweep-sandboxes.ts';
import { NAME } from './manifests.ts';

const signal = new AbortController().signal;
const test = it.skipIf(noPodman() !== null);
const TASK_IMAGE = 'registry.test/task:1';
let kubernetes: Kubernetes;

beforeAll(async () => {
  if (noPodman() !== null) return;
  kubernetes = await startKubernetes(signal);
  vi.stubEnv('KUBECONFIG', kubernetes.kubeconfig);
});
afterEach(() => {
  kubernetes.cluster.forbidden.clear();
  kubernetes.cluster.enforcesPolicies = true;
  kubernetes.cluster.unschedulable = null;
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await kubernetes?.[Symbol.asyncDispose]();
});

const command = (script: string, more: Partial<Command> = {}): Command => ({
  argv: ['bash', '-c', script],
  cwd: '/app',
  env: { PATH: '/usr/bin:/bin', API_KEY: 'a secret' },
  limits: LIMITS,
  mounts: [],
  network: { kind: 'none' },
  signal,
  ...more,
});

/** An empty sandbox, which is removed in the end. */
async function sandboxed(
  setting: { require_network_policy?: boolean; namespace?: string; user_namespaces?: boolean } = {},
) {
  const folder = await temporaryHome();
  const backend = await openBackend({ kind: 'kubernetes', ...setting });
  const sandbox = await backend.start({ home: folder.home, name: 't.1', image: null });
  await backend.copyIn(sandbox);
  const remove = async (): Promise<void> => {
    await backend.destroy(folder.home, 't.1');
    await folder[Symbol.asyncDispose]();
  };
  return { home: folder.home, backend, sandbox, [Symbol.asyncDispose]: remove };
}

/** Resolves with the name of the only pod when its program has printed something. */
async function running(start: (onOutput: () => void) => Promise<unknown>): Promise<string> {
  const up = Promise.withResolvers<void>();
  void start(up.resolve).catch(up.reject);
  await up.promise;
  return kubernetes.cluster.pods[0]?.metadata?.name ?? '';
}

async function taskIn(home: string, files: Record<string, string>) {
  const folder = join(home, 'image-task');
  await writeFiles(folder, { 'task.toml': '', 'instruction.md': 'Do it.', 'tests/test.sh': 'exit 1', ...files });
  return loadTask(folder, { hasImages: true });
}

const SETTINGS = { sandbox: { kind: 'kubernetes' }, verifier_sandbox: null } as const;

test('a task runs in its own image, with the files of its work folder, and its work is judged in a clean pod', async () => {
  await using folder = await temporaryHome();
  await buildTaskImage(folder.home);
  const task = await taskIn(folder.home, {
    'task.toml': `[environment]\ndocker_image = "${TASK_IMAGE}"\n`,
    'tests/test.sh':
      'if test "$(cat answer.txt)" = "hello from the image" && ! test -e /tmp/left; then echo 1; else echo 0; fi > /logs/verifier/reward.txt',
  });
  const options = { home: folder.home, signal, report: (line: string) => void reported.push(line) };
  const reported: string[] = [];
  await Promise.all(Array.from({ length: 4 }, () => placeTask(task, SETTINGS, options)));
  const copied = 'copying /work of the image registry.test/task:1 (once)';
  expect(reported.filter((line) => line === copied)).toHaveLength(1);
  // `gc` removes copies that nothing used.
  await rm(join(folder.home, 'images'), { recursive: true });
  const { backend, image } = await placeTask(task, SETTINGS, options);
  expect(reported.filter((line) => line === copied)).toHaveLength(2);
  expect(image).toMatchObject({ id: TASK_IMAGE, workdir: '/work', env: { GREETING: 'hello' } });
  const key = { home: folder.home, trialId: 't', attempt: 1, backend };
  const script = 'echo "$GREETING $(cat data.txt)" > answer.txt; touch /tmp/left; setsid sleep 4791 & echo done';
  const agent = await loadAgent(agentFile.parse({ command: ['sh', '-c', script] }));
  try {
    const sandbox = await createSandbox({ ...key, task, image });
    const gateway = { gateway: 'http://127.0.0.1:9', network: 'gateway', apiKey: 'k', model: 'm' } as const;
    const ended = await runAgentProcess({ agent, task, sandbox, backend, trialId: 't', ...gateway, signal });
    expect(ended).toMatchObject({ ending: 'done', process: { stdout: 'done\n' } });
    const { rewards } = await judgeWork({ task, sandbox, backend, signal });
    expect(rewards).toEqual({ reward: 1 });
  } finally {
    await destroySandbox(key);
  }
  expect(kubernetes.cluster.pods).toEqual([]);
});

/** Makes an image with a work folder of its own from the node's. */
async function buildTaskImage(home: string): Promise<void> {
  const { docker, cluster } = kubernetes;
  const folder = join(home, 'build');
  await writeFiles(folder, {
    Dockerfile: `FROM localhost/trialgate-test-node:1\nWORKDIR /work\nENV GREETING=hello\nCOPY data.txt data.txt\n`,
    'data.txt': 'from the image\n',
  });
  const building = await docker.buildImage(Readable.from(pack(folder)), { t: 'localhost/trialgate-test-task:1' });
  await new Promise<void>((resolve, reject) =>
    docker.modem.followProgress(building, (error) => (error ? reject(error) : resolve())),
  );
  cluster.images.set(TASK_IMAGE, 'localhost/trialgate-test-task:1');
}

test('a task with a Dockerfile is refused with what to do', async () => {
  await using folder = await temporaryHome();
  const task = await taskIn(folder.home, { 'environment/Dockerfile': 'FROM debian\nRUN true\n' });
  await expect(placeTask(task, SETTINGS, { home: folder.home, signal })).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(/Dockerfile: .* push it to a registry .* name it as `docker_image`/),
  });
});

test('a pod gets no key of the cluster and no right, and its description shows no variable of the program', async () => {
  await using one = await sandboxed();
  const stop = new AbortController();
  const options = { signal: stop.signal };
  const pod = await running((onOutput) =>
    one.backend.run(one.sandbox, command('echo up; sleep 4792', { ...options, onOutput })),
  );
  const [described] = kubernetes.cluster.pods;
  expect(described).toMatchObject({
    metadata: { name: pod, annotations: { [NAME]: 't.1' } },
    spec: {
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      restartPolicy: 'Never',
      securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
      containers: ['program', 'helper'].map((name) => ({
        name,
        securityContext: {
          allowPrivilegeEscalation: false,
          capabilities: { drop: ['ALL'] },
          readOnlyRootFilesystem: true,
        },
      })),
    },
  });
  expect(JSON.stringify(described)).not.toContain('a secret');
  stop.abort();
  await until(() => kubernetes.cluster.pods.length === 0, 60_000);
});

test('the next worker deletes the pods of one that is dead, in the namespace where they are, and no others', async () => {
  await using dead = await sandboxed({ namespace: 'others' });
  await using alive = await sandboxed();
  const stop = new AbortController();
  const lost = dead.backend.run(dead.sandbox, command('sleep 4793', { signal: stop.signal }));
  await until(() => kubernetes.cluster.pods.length === 1, 60_000);
  const left = structuredClone(kubernetes.cluster.pods[0]);
  stop.abort();
  await lost;
  await kubernetes.cluster.createAgain(left);
  const owner = join(dead.home, 'sandboxes/.owners/t.1');
  writeFileSync(owner, JSON.stringify({ ...JSON.parse(await readFile(owner, 'utf8')), pid: 2 ** 22 - 1 }));
  const held = alive.backend.run(alive.sandbox, command('sleep 4794'));
  await until(() => kubernetes.cluster.pods.length === 2, 60_000);
  // It makes no pods, so it needs no policy.
  for (const verb of ['get', 'create'] as const) kubernetes.cluster.forbidden.add(`${verb} networkpolicies`);
  expect(await sweepSandboxes(alive.home)).toEqual([]);
  expect(await sweepSandboxes(dead.home)).toEqual(['t.1']);
  expect(kubernetes.cluster.pods).toHaveLength(1);
  await alive.backend.destroy(alive.home, 't.1');
  expect(await held).toMatchObject({ reason: 'cancelled' });
  expect(kubernetes.cluster.pods).toEqual([]);
});

test.each(['create pods', 'create pods/exec', 'create pods/attach', 'get pods'] as const)(
  'an account that may not %s is told so, and it counts as the host’s failure',
  async (verb) => {
    await using one = await sandboxed();
    kubernetes.cluster.forbidden.add(verb);
    const failed = one.backend.run(one.sandbox, command('true')).catch((error: unknown) => error);
    const error = await failed;
    kubernetes.cluster.forbidden.clear();
    expect(error).toBeInstanceOf(SandboxError);
    expect(String(error)).toContain(`must be allowed to ${verb}`);
  },
);

test('a cluster that does not enforce its network policy runs no program, unless the setting says so', async () => {
  kubernetes.cluster.enforcesPolicies = false;
  await using one = await sandboxed();
  const refused = one.backend.run(one.sandbox, command('true'));
  await expect(refused).rejects.toThrow(/although the network policy forbids it: install a network plugin/);
  await using other = await sandboxed({ require_network_policy: false });
  expect(await other.backend.run(other.sandbox, command('echo ran'))).toMatchObject({ stdout: 'ran\n' });
});

test('a program that waits for a node can be cancelled, and leaves no pod', async () => {
  kubernetes.cluster.unschedulable = '0/1 nodes are available: 1 Insufficient memory.';
  await using one = await sandboxed();
  const stop = new AbortController();
  const waiting = one.backend.run(one.sandbox, command('true', { signal: stop.signal }));
  await until(() => kubernetes.cluster.pods.length === 1, 60_000);
  stop.abort();
  expect(await waiting).toMatchObject({ reason: 'cancelled' });
  expect(kubernetes.cluster.pods).toEqual([]);
});

test('a pod that its node evicts for its own disk space has reached its limit, and one evicted for others is the host’s failure', async () => {
  await using one = await sandboxed();
  const run = async (message: string) => {
    const ended = Promise.withResolvers<unknown>();
    const pod = await running((onOutput) => {
      const result = one.backend.run(one.sandbox, command('echo up; sleep 4796', { onOutput }));
      result.then(ended.resolve, ended.resolve);
      return result;
    });
    await kubernetes.cluster.evict(pod, message);
    return ended.promise;
  };
  expect(await run('Usage of EmptyDir volume "work" exceeds the limit "64Mi".')).toMatchObject({
    reason: 'storage_limit',
  });
  expect(await run('The node was low on resource: ephemeral-storage.')).toBeInstanceOf(SandboxError);
});

test('a pod that somebody deletes while its program runs is the host’s failure, although a signal has ended the program', async () => {
  await using one = await sandboxed();
  const ended = Promise.withResolvers<unknown>();
  const pod = await running((onOutput) => {
    const result = one.backend.run(one.sandbox, command('echo up; sleep 4798', { onOutput }));
    result.then(ended.resolve, ended.resolve);
    return result;
  });
  await kubernetes.cluster.delete(pod);
  expect(await ended.promise).toBeInstanceOf(SandboxError);
});

test('a pod with a user namespace has a user that such a namespace knows', async () => {
  await using one = await sandboxed({ user_namespaces: true });
  expect(await one.backend.run(one.sandbox, command('id -u'))).toMatchObject({
    reason: 'exited',
    stdout: expect.stringMatching(/^[1-9]\d{3,4}\n$/),
  });
});

test('an image that no registry has is refused at once', async () => {
  await using one = await sandboxed();
  const prepared = one.backend.prepare({ name: 'registry.test/none:1' }, { home: one.home, signal });
  await expect(prepared).rejects.toMatchObject({ code: 'bad_input', message: expect.stringMatching(/not found/) });
  expect(kubernetes.cluster.pods).toEqual([]);
  expect(await ownedNames(one.home)).toEqual(['t.1']);
});

test('an API server that is gone while a program runs is the host’s failure', async () => {
  await using own = await startKubernetes(signal);
  vi.stubEnv('KUBECONFIG', own.kubeconfig);
  using _ = { [Symbol.dispose]: () => void vi.stubEnv('KUBECONFIG', kubernetes.kubeconfig) };
  await using folder = await temporaryHome();
  const backend = await openBackend({ kind: 'kubernetes' });
  const sandbox = await backend.start({ home: folder.home, name: 't.1', image: null });
  const up = Promise.withResolvers<void>();
  const ended = backend.run(sandbox, command('echo up; sleep 4797', { onOutput: () => up.resolve() }));
  ended.catch(up.reject);
  await up.promise;
  await own.cluster.stop();
  await expect(ended).rejects.toBeInstanceOf(SandboxError);
  await expect(openBackend({ kind: 'kubernetes' })).rejects.toMatchObject({ code: 'missing_prerequisite' });
});

test('a pod that is not as Kubernetes’ schemas say is refused by the cluster of the tests', async () => {
  const { cluster } = kubernetes;
  const wrong = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'wrong' },
    spec: { containers: [{ name: 'a', imag: 'b' }] },
  };
  expect(cluster.faultsOf('pods', wrong)).toMatch(/imag/);
  const label = {
    metadata: { name: 'wrong', labels: { a: 'not@valid' } },
    spec: { containers: [{ name: 'a', image: DEFAULT_POD_IMAGE }] },
  };
  expect(cluster.faultsOf('pods', label)).toMatch(/labels/);
});
