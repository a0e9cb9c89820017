import { execFileSync } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sandboxWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { listFolder } from './list-tasks.ts';
import { loadTask } from './load-task.ts';

let folder = '';
const GOOD = { 'task.toml': '', 'instruction.md': 'Do it.', 'tests/test.sh': 'true' };

beforeEach(async () => void (folder = await mkdtemp(join(tmpdir(), 'trialgate-tasks-'))));
afterEach(() => rm(folder, { recursive: true }));

async function write(name: string, files: Record<string, string | null>): Promise<string> {
  for (const [path, text] of Object.entries({ ...GOOD, ...files })) {
    if (text === null) continue;
    await mkdir(dirname(join(folder, name, path)), { recursive: true });
    await writeFile(join(folder, name, path), text);
  }
  return join(folder, name);
}

test('a task.toml has Harbor’s keys, and what it leaves out has Harbor’s defaults', async () => {
  const toml = `
version = "1.0"
[task]
name = "org/adding"
[metadata]
difficulty = "easy"
[agent]
timeout_sec = 12.5
network_mode = "public"
[verifier]
env = { LANGUAGE = "en" }
[environment]
memory_mb = 512
docker_image = "python:3.12"
`;
  const task = await loadTask(await write('a', { 'task.toml': toml }));
  expect(task).toMatchObject({
    name: 'org/adding',
    network: 'public',
    agent: { timeoutSec: 12.5 },
    verifier: { timeoutSec: 600, env: { LANGUAGE: 'en' } },
    environment: { cpus: 1, memoryMb: 512, storageMb: 10240 },
  });
  expect((await loadTask(await write('unnamed', {}))).name).toBe('unnamed');
});

test.each([
  ['no instruction', { 'instruction.md': null }, /instruction\.md is missing/],
  ['an empty instruction', { 'instruction.md': ' \n' }, /instruction\.md is empty/],
  ['no task.toml', { 'task.toml': null }, /task\.toml is missing/],
  ['no tests', { 'tests/test.sh': null }, /tests\/test\.sh is missing/],
  ['broken TOML', { 'task.toml': '[agent]\ntimeout_sec = \n' }, /task\.toml:2:\d+: .+/],
  [
    'a wrong type',
    { 'task.toml': '[agent]\ntimeout_sec = "long"' },
    /task\.toml: agent\.timeout_sec: .*expected number/,
  ],
  ['a negative limit', { 'task.toml': '[environment]\nmemory_mb = -1' }, /task\.toml: environment\.memory_mb/],
  ['a section that is none', { 'task.toml': 'verifier = 3' }, /task\.toml: verifier: .*expected object/],
])('a task with %s is refused with an error that names the file and the key', async (_, files, message) => {
  const bad = await write('bad', files);
  await expect(loadTask(bad)).rejects.toMatchObject({ code: 'bad_input', message: expect.stringMatching(message) });
  await expect(listFolder(folder)).rejects.toThrow(message);
});

test('what a task.toml of Harbor says about sandboxes, network and tests is honoured, and keys that change nothing are accepted', async () => {
  const toml = `
schema_version = "1.4"
source = "https://example.org"
artifacts = ["result.txt", { source = "/app/out", destination = "out" }]
multi_step_reward_strategy = "mean"
[task]
name = "org/all"
version = "2"
authors = [{ name = "A", email = "a@example.org" }]
keywords = ["k"]
[metadata]
anything = { at = ["all"] }
[agent]
network_mode = "no-network"
[verifier]
environment_mode = "separate"
network_mode = "no-network"
env = { PRICE = "$5" }
[verifier.environment]
cpus = 0.5
env = { OF = "tests" }
[environment]
allow_internet = true
os = "Linux"
workdir = "/app/"
build_timeout_sec = 60.0
memory = "1.5G"
storage = "512M"
gpus = 0
gpu_types = ["T4"]
mcp_servers = []
env = { OF = "agent" }
[solution]
env = { KEY = "v" }
`;
  expect(await loadTask(await write('all', { 'task.toml': toml, 'solution/solve.sh': '' }))).toMatchObject({
    network: 'no-network',
    verifier: {
      env: { PRICE: '$5' },
      environment: { cpus: 0.5, memoryMb: 2048, storageMb: 10240, env: { OF: 'tests' } },
    },
    environment: { cpus: 1, memoryMb: 1536, storageMb: 512, env: { OF: 'agent' } },
  });
});

test.each([
  ['', null, []],
  ['[environment]\nallowed_hosts = ["a.test"]', ['a.test'], ['a.test']],
  ['[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.test"]', ['a.test'], ['a.test']],
  ['[environment]\nallowed_hosts = ["a.test"]\n[agent]\nallowed_hosts = ["b.test"]', ['b.test'], ['a.test']],
  ['[environment]\nallowed_hosts = ["a.test"]\n[verifier]\nnetwork_mode = "no-network"', ['a.test'], []],
  ['[agent]\nnetwork_mode = "no-network"\n[verifier]\nallowed_hosts = ["*.c.test"]', 'no-network', ['*.c.test']],
  [
    '[environment]\nallowed_hosts = ["a.test"]\n[verifier.environment]\nallowed_hosts = ["c.test"]',
    ['a.test'],
    ['c.test'],
  ],
  ['[environment]\nallowed_hosts = ["a.test"]\n[verifier.environment]\ncpus = 2', ['a.test'], []],
  ['[agent]\nnetwork_mode = "allowlist"', 'no-network', []],
])('task.toml with %j gives the agent the network %j, and the tests the hosts %j', async (toml, network, hosts) => {
  expect(await loadTask(await write('listed', { 'task.toml': toml }))).toMatchObject({ network, verifier: { hosts } });
});

const NEEDS = 'needs a container sandbox: set `sandbox: container` in the run file';
const NOT_POSSIBLE = 'is not possible in this version, whatever the sandbox';

test.each([
  [
    '[environment]\ndocker_image = "ghcr.io/a/b:1"',
    `environment.docker_image: the task wants the image "ghcr.io/a/b:1": one other than python, debian and ubuntu ${NEEDS}`,
  ],
  ['[environment]\ngpus = 2', `environment.gpus: the task wants 2 GPUs: that ${NOT_POSSIBLE}`],
  ['[environment.tpu]\ntype = "v6e"', `environment.tpu: the task wants a TPU: that ${NOT_POSSIBLE}`],
  [
    '[[environment.mcp_servers]]\nname = "files"\ntransport = "stdio"',
    `environment.mcp_servers: the task wants the MCP servers files: that ${NOT_POSSIBLE}`,
  ],
  [
    '[environment]\nskills_dir = "/skills"',
    `environment.skills_dir: the task wants the skills in "/skills" of its image: that ${NOT_POSSIBLE}`,
  ],
  [
    '[environment.healthcheck]\ncommand = "true"',
    `environment.healthcheck: the task wants a service whose health is checked: that ${NOT_POSSIBLE}`,
  ],
  [
    '[environment]\nworkdir = "/srv"',
    `environment.workdir: the task wants to start in "/srv": a work folder other than /app ${NOT_POSSIBLE}`,
  ],
  ['[environment]\nos = "windows"', 'environment.os: the task wants "windows": every sandbox of Trialgate runs Linux'],
  [
    '[environment]\nnetwork_mode = "no-network"\nallowed_hosts = ["example.org"]',
    'environment.allowed_hosts: `allowed_hosts` counts only with `network_mode = "allowlist"`',
  ],
  ['[agent]\nallowed_hosts = ["https://example.org"]', 'agent.allowed_hosts.0: "https://example.org" is no host'],
  ['[verifier]\nallowed_hosts = ["127.0.0.1"]', "verifier.allowed_hosts.0: 127.0.0.1 is this machine's loopback"],
  [
    '[environment]\nnetwork_mode = "public"',
    `environment.network_mode: the task wants an open network for its tests: that ${NOT_POSSIBLE}; if only the agent needs it, add \`network_mode = "no-network"\` to [verifier]`,
  ],
  ['[environment]\nallow_internet = true', 'environment.allow_internet: the task wants an open network for its tests'],
  ['[verifier]\nnetwork_mode = "public"', 'verifier.network_mode: the task wants an open network for its tests'],
  [
    '[verifier.environment]\nallow_internet = true',
    'verifier.environment.allow_internet: the task wants an open network for its tests',
  ],
  ['[verifier.environment]\ngpus = 1', `verifier.environment.gpus: the task wants a GPU: that ${NOT_POSSIBLE}`],
  [
    '[environment]\nenv = { KEY = "${KEY:-x}" }',
    'environment.env.KEY: the task wants a variable of this machine, and no task gets one: write the value itself',
  ],
  ['[verifier]\nenv = { KEY = "${KEY}" }', 'verifier.env.KEY: the task wants a variable of this machine'],
  [
    '[agent]\nuser = "root"',
    `agent.user: the task wants a user of the image: a sandbox has one user of its own, and another ${NOT_POSSIBLE}`,
  ],
  ['[verifier]\nuser = 0', 'verifier.user: the task wants a user of the image'],
  [
    '[verifier]\nenvironment_mode = "shared"',
    `verifier.environment_mode: the task wants its tests beside what the agent left running: that ${NOT_POSSIBLE}; if they need only the files in /app, delete this key`,
  ],
  [
    '[[verifier.collect]]\ncommand = "dump"',
    `verifier.collect: the task wants commands between agent and tests: that ${NOT_POSSIBLE}`,
  ],
  [
    '[[steps]]\nname = "a"\n[[steps]]\nname = "b"',
    'steps: the task wants to be done in steps (a, b): that is not possible in this version, whatever the sandbox: make a task of each step',
  ],
  [
    'artifacts = ["/var/log/x"]',
    `artifacts.0: the task wants "/var/log/x" to be kept: the tests get a copy of /app, and more ${NOT_POSSIBLE}`,
  ],
  [
    'artifacts = [{ source = "x", service = "db" }]',
    `artifacts.0.service: the task wants files of the service "db": that ${NOT_POSSIBLE}`,
  ],
  [
    'artifacts = [{ source = "x", exclude = ["*.o"] }]',
    `artifacts.0.exclude: the task wants tests that do not see some files of /app: that ${NOT_POSSIBLE}`,
  ],
  [
    '[environment]\nmemory = "4G"\nmemory_mb = 2048',
    'environment.memory: `memory_mb` says another size: write only `memory_mb`',
  ],
  ['[environment]\nmemory = "much"', 'environment.memory: a size is a number with G, M or K, such as "4G"'],
  ['schema_version = "2.0"', "schema_version: this version of Trialgate reads Harbor's schema 1 (1.0, 1.1, …)"],
  ['[environment]\nmemory_md = 1', 'environment.memory_md: unknown setting, did you mean `memory_mb`?'],
  ['[verifier.environment]\ncpu = 1', 'verifier.environment.cpu: unknown setting, did you mean `cpus`?'],
  ['[agents]\ntimeout_sec = 1', 'agents: unknown setting, did you mean `agent`?'],
])(
  'a task.toml with %j is refused with a sentence that says what it wants and what would give it',
  async (toml, message) => {
    const bad = await write('bad', { 'task.toml': toml });
    await expect(loadTask(bad)).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringContaining(`/bad/task.toml: ${message}`),
    });
  },
);

test('a task of several steps is refused as such, although it has no instruction.md of its own', async () => {
  const steps = await write('steps', {
    'task.toml': '[[steps]]\nname = "a"',
    'instruction.md': null,
    'tests/test.sh': null,
  });
  await expect(loadTask(steps)).rejects.toThrow('make a task of each step');
});

const MACHINE = 'if this machine has all that the task needs, delete the Dockerfile';

test.each([
  [
    'FROM node:22',
    'Dockerfile:1: the task wants `FROM node:22`, and a plain image is one of python, debian and ubuntu',
  ],
  ['FROM python\nCOPY . /app/', 'Dockerfile: it works in /, and the work folder of a sandbox is /app'],
  ['FROM ubuntu\nRUN apt-get install -y gcc \\', 'Dockerfile:2: the task wants `RUN apt-get install -y gcc`'],
  ['FROM python\nFROM debian', 'Dockerfile:2: the task wants `FROM debian`'],
  [
    '# a comment\nFROM python\nRUN apt-get update && \\\n  apt-get install -y git\n',
    `Dockerfile:3: the task wants \`RUN apt-get update && apt-get install -y git\` in an image of its own: that ${NEEDS}; ${MACHINE}`,
  ],
  ['FROM python\nENV A=b', 'Dockerfile:2: the task wants `ENV A=b` in an image of its own'],
  [
    'FROM python\nWORKDIR /srv',
    'Dockerfile:2: the task wants to work in /srv, and the work folder of a sandbox is /app',
  ],
  [
    'FROM python\nCOPY a.txt /data/',
    'Dockerfile:2: the task wants `COPY a.txt /data/`, and a sandbox has each file of environment/ as /app/NAME',
  ],
  ['FROM python\nCOPY a.txt /app/b.txt', 'Dockerfile:2: the task wants `COPY a.txt /app/b.txt`'],
  ['FROM python\nCOPY sub /app/', 'Dockerfile:2: the task wants `COPY sub /app/`'],
  ['FROM python\nCOPY --chown=1 . /app/', 'Dockerfile:2: the task wants `COPY --chown=1 . /app/`'],
  ['FROM python\nCOPY . .', 'Dockerfile:2: the task wants `COPY . .`'],
  [
    'FROM python\nCOPY a.txt /app/',
    'Dockerfile: it does not copy sub to /app/, where a sandbox has it: add `COPY . /app/`, or remove the file',
  ],
])('a task with the Dockerfile %j is refused with its line and what would give it', async (text, message) => {
  const files = { 'environment/a.txt': '', 'environment/sub/b.txt': '', 'environment/Dockerfile': text };
  await expect(loadTask(await write('bad', files))).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining(`/bad/environment/${message}`),
  });
});

test.each([
  'FROM ubuntu:24.04\nWORKDIR /app\nCOPY . .',
  'FROM --platform=linux/amd64 docker.io/library/python:3.12-slim AS base\nWORKDIR /app\nCOPY a.txt /app/\nCOPY sub/ /app/sub/',
  'from debian\nLABEL a=b\nWORKDIR /app\ncopy ./a.txt ./a.txt\ncopy sub sub\nCMD ["bash"]',
])('a task with the Dockerfile %j is loaded, because a sandbox gives all that it asks for', async (text) => {
  const files = { 'environment/a.txt': '', 'environment/sub/b.txt': '', 'environment/Dockerfile': text };
  expect(await loadTask(await write('good', files))).toMatchObject({ name: 'good' });
});

test('the Dockerfile of the tests counts only when they have a sandbox of their own', async () => {
  const image = { 'tests/Dockerfile': 'FROM ubuntu:24.04\nRUN apt-get install -y curl' };
  expect(await loadTask(await write('beside', image))).toMatchObject({ name: 'beside' });
  const separate = { 'task.toml': '[verifier]\nenvironment_mode = "separate"' };
  await expect(loadTask(await write('own', { ...image, ...separate }))).rejects.toThrow(
    /own\/tests\/Dockerfile:2: the task wants `RUN apt-get install -y curl`/,
  );
  const plain = { 'tests/Dockerfile': 'FROM ubuntu:24.04\nWORKDIR /app\nCOPY . /tests/' };
  expect(await loadTask(await write('plain', { ...plain, ...separate }))).toMatchObject({ name: 'plain' });
});

test.each([
  ['environment/docker-compose.yaml', 'the task wants services of its own'],
  ['environment/singularity-compose.yaml', 'the task wants services of its own'],
  ['trajectory.json', 'the task wants its agent to go on from an earlier conversation'],
  ['.harborignore', 'it leaves files out of the tests'],
  ['tests/.harborignore', 'it leaves files out of the tests'],
])('a task with the file %s is refused', async (name, message) => {
  await expect(loadTask(await write('bad', { [name]: 'x' }))).rejects.toThrow(`/bad/${name}: ${message}`);
});

test('a .dockerignore is refused where a Dockerfile makes it count', async () => {
  const ignore = { 'environment/.dockerignore': 'x' };
  expect(await loadTask(await write('alone', ignore))).toMatchObject({ name: 'alone' });
  const both = { ...ignore, 'environment/Dockerfile': 'FROM python\nCOPY . /app/' };
  for (const hasImages of [false, true])
    await expect(loadTask(await write('both', both), { hasImages })).rejects.toThrow(
      /\.dockerignore: it leaves files out/,
    );
});

test('the agent does not see the canary at the beginning of an instruction', async () => {
  const text = '<!-- benchmark canary GUID 1 -->\n# CANARY 2\n\nDo it.\n# A canary is a bird.';
  expect((await loadTask(await write('marked', { 'instruction.md': text }))).instruction).toBe(
    'Do it.\n# A canary is a bird.',
  );
  const indented = await write('indented', { 'instruction.md': '# canary\n\n  Do it.\n' });
  expect((await loadTask(indented)).instruction).toBe('  Do it.\n');
});

test.each(['instruction.md', 'task.toml', 'tests/test.sh', 'tests', 'environment'])(
  'a task whose %s is a link out of its folder is refused',
  async (name) => {
    const outside = await write('outside', { 'environment/file': 'theirs' });
    const linked = await write('linked', {});
    await rm(join(linked, name), { recursive: true, force: true });
    await symlink(join(outside, name), join(linked, name));
    await expect(loadTask(linked)).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringMatching(/linked\/[a-z.]+.* leads out of the task/),
    });
  },
);

test('a task can be a link and can have links to its own files', async () => {
  const task = await write('task', { 'instruction.md': null, 'text.md': 'Linked.' });
  await symlink('text.md', join(task, 'instruction.md'));
  await symlink('task', join(folder, 'link'));
  expect(await loadTask(join(folder, 'link'))).toMatchObject({ name: 'task', folder: task, instruction: 'Linked.' });
});

test('a task whose instruction.md is a named pipe is refused at once, without waiting for a writer', async () => {
  const task = await write('piped', { 'instruction.md': null });
  execFileSync('mkfifo', [join(task, 'instruction.md')]);
  await expect(loadTask(task)).rejects.toThrow(/instruction\.md is not a regular file/);
});

test('a task that an agent wrote into its sandbox is refused, also after the sandbox was removed', async () => {
  await using deployment = await temporaryHome();
  const sandbox = await sandboxWith(deployment.home, {});
  await cp(await write('task', {}), join(sandbox.work, 'task'), { recursive: true });
  const removed = join(deployment.home, 'sandboxes/.trash/t.1.removed');
  await cp(sandbox.root, removed, { recursive: true });
  for (const written of [join(sandbox.work, 'task'), join(removed, 'work/task')]) {
    await expect(loadTask(written)).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringContaining('lies in a sandbox'),
    });
  }
});

test('the tasks of a folder are listed sorted, and a task’s folder is that task', async () => {
  for (const name of ['b', 'c', 'a']) await write(name, {});
  await writeFile(join(folder, 'README.md'), '');
  const [a, b, c] = ['a', 'b', 'c'].map((name) => join(folder, name));
  expect(await listFolder(folder)).toEqual([a, b, c]);
  expect(await listFolder(join(folder, 'c'))).toEqual([c]);
});

test('a tasks folder that is missing or empty is refused', async () => {
  await expect(listFolder(join(folder, 'nowhere'))).rejects.toThrow(/no folder .*nowhere/);
  await expect(listFolder(folder)).rejects.toThrow(/neither a task nor a folder of tasks/);
});

test('a task’s folder whose name looks like a row’s is refused', async () => {
  await write('a#1', {});
  await expect(listFolder(folder)).rejects.toThrow(/a#1: a name that ends with #NUMBER is a row's: rename the folder/);
});

test('a task that needs an image is loaded for sandboxes that have images, with what each image is made of', async () => {
  const task = await write('image', {
    'environment/Dockerfile': 'FROM node:22\nRUN npm install -g x\n',
    'tests/Dockerfile': 'FROM ubuntu:24.04\nRUN apt-get install -y curl\n',
    'task.toml': '[verifier]\nenvironment_mode = "separate"',
  });
  expect(await loadTask(task, { hasImages: true })).toMatchObject({
    image: { folder: join(task, 'environment') },
    verifier: { image: { folder: join(task, 'tests') } },
  });
  const slow = await write('slow', {
    'environment/Dockerfile': 'FROM node:22\n',
    'task.toml': '[environment]\nbuild_timeout_sec = 900',
  });
  expect((await loadTask(slow, { hasImages: true })).image).toEqual({
    folder: join(slow, 'environment'),
    buildSeconds: 900,
  });
  const named = await write('named', { 'task.toml': '[environment]\ndocker_image = "ghcr.io/a/b:1"' });
  expect(await loadTask(named, { hasImages: true })).toMatchObject({
    image: { name: 'ghcr.io/a/b:1' },
    verifier: { image: null },
  });
});

test('a task with services of its own is refused, also for sandboxes that have images', async () => {
  const task = await write('services', { 'environment/docker-compose.yaml': 'services: {}' });
  await expect(loadTask(task, { hasImages: true })).rejects.toThrow(`services of its own: that ${NOT_POSSIBLE}`);
});

const commit = 'ab'.repeat(20);

test('a task may name a repository, and a relative path in it is relative to the task', async () => {
  const toml = (url: string, more = '') =>
    `[trialgate.repository]\nurl = ${JSON.stringify(url)}\ncommit = "${commit}"\n${more}`;
  expect((await loadTask(await write('none', {}))).repository).toBeNull();
  const plain = await loadTask(await write('plain', { 'task.toml': toml('../mirrors/x.git') }));
  expect(plain.repository).toEqual({ url: join(folder, 'mirrors/x.git'), commit, path: '.', history: false });
  const whole = await loadTask(
    await write('whole', { 'task.toml': toml('https://example.org/x', 'path = "./a/b/"\nhistory = true') }),
  );
  expect(whole.repository).toEqual({ url: 'https://example.org/x', commit, path: 'a/b', history: true });
});

test.each([
  ['an option', { url: '--upload-pack=touch /tmp/x' }, 'url: expected https://'],
  ['a transport that runs a program', { url: 'ext::sh -c touch% /tmp/x' }, 'url: expected https://'],
  ['a host that is an option', { url: 'ssh://-oProxyCommand=x/y' }, 'url: expected https://'],
  ['a line break', { url: 'https://a/b\nx' }, 'url: expected https://'],
  ['a short id', { commit: 'abcdef1' }, 'commit: expected the commit'],
  ['a branch', { commit: 'main' }, 'commit: expected the commit'],
  ['a folder outside of the work folder', { path: '../x' }, 'path: expected a folder within /app'],
  ['an absolute folder', { path: '/x' }, 'path: expected a folder within /app'],
  ['a key that is not known', { comit: 'x' }, 'did you mean `commit`'],
])('a repository with %s in its table is refused, and the message has no URL', async (_, wrong, message) => {
  const table = { url: 'https://me:s3cret@example.org/x', commit, ...wrong };
  const lines = Object.entries(table).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
  const bad = await write('bad', { 'task.toml': ['[trialgate.repository]', ...lines].join('\n') });
  const failure: Error = await loadTask(bad).then(
    () => new Error('no failure'),
    (error: Error) => error,
  );
  expect(failure.message).toMatch(/task\.toml: trialgate\.repository\./);
  expect(failure.message).toContain(message);
  expect(failure.message).not.toMatch(/s3cret|upload-pack|ext::|Proxy/);
});
