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
