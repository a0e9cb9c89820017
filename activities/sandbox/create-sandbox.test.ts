import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { until } from '../../tests/support/harness/until.ts';
import { createSandbox } from './create-sandbox.ts';
import { destroySandbox } from './destroy-sandbox.ts';
import { hostWork } from './errors.ts';
import { isolation } from './isolation.ts';
import { sweepSandboxes } from './sweep-sandboxes.ts';
import { listTrash } from './trash.ts';
import {
  sandboxWith,
  shell,
  taskWith,
  temporaryHome,
  writeFiles,
} from '../../tests/support/harness/sandbox-fixtures.ts';
import { openBackend } from './backends.ts';

const backend = await openBackend();

const id = { trialId: 't', attempt: 1 };

test('a sandbox has its task’s files, but neither the task’s tests nor its Dockerfile', async () => {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'true', {
    'environment/app/data.txt': 'x',
    'environment/Dockerfile': 'FROM python\nWORKDIR /app\nCOPY . /app/',
  });
  const { work, root } = await createSandbox({ backend, ...id, home: folder.home, task });
  expect(readdirSync(work).toSorted()).toEqual(['app', 'instruction.md']);
  expect(readdirSync(root).toSorted()).toEqual(['home', 'logs', 'shm', 'tmp', 'work']);
  expect(await readFile(join(work, 'app/data.txt'), 'utf8')).toBe('x');
});

test('a link in a task’s environment is refused and no sandbox is left', async () => {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'true', { 'environment/a.txt': 'x' });
  symlinkSync('/etc/passwd', join(task.folder, 'environment', 'link'));
  await expect(createSandbox({ backend, ...id, home: folder.home, task })).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(/environment\/link: a sandbox gets no links/),
  });
  expect(readdirSync(join(folder.home, 'sandboxes')).filter((name) => !name.startsWith('.'))).toEqual([]);
});

test('when the activity that makes a sandbox is retried, the sandbox is made anew without files of the first try', async () => {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'true');
  const first = await sandboxWith(folder.home, { 'left-over.txt': '' }, task);
  const here = await isolation();
  const running = shell(here, first, 'sleep 600');
  await new Promise((resolve) => setTimeout(resolve, 200));
  const second = await createSandbox({ backend, ...id, home: folder.home, task });
  expect(readdirSync(second.work)).toEqual(['instruction.md']);
  await running;
});

test('removing a sandbox once or twice leaves no file of it', async () => {
  await using folder = await temporaryHome();
  const sandbox = await sandboxWith(folder.home, { 'deep/file': '' });
  for (let time = 0; time < 2; time += 1) await destroySandbox({ backend, ...id, home: folder.home });
  expect(existsSync(sandbox.root)).toBe(false);
  for (const kept of readdirSync(join(folder.home, 'sandboxes')))
    expect(readdirSync(join(folder.home, 'sandboxes', kept))).toEqual([]);
});

test('a sweep moves the sandboxes of dead workers to the trash, removes them in the background, and keeps those of living workers', async () => {
  await using folder = await temporaryHome();
  const [dead, living] = [
    await sandboxWith(folder.home, {}, undefined, 'dead'),
    await sandboxWith(folder.home, {}, undefined, 'living'),
  ];
  const worker = spawn('true');
  await once(worker, 'exit');
  const file = join(folder.home, 'sandboxes', '.owners', dead.name);
  await writeFile(file, JSON.stringify({ ...JSON.parse(await readFile(file, 'utf8')), pid: worker.pid }));
  expect(await sweepSandboxes(folder.home)).toEqual(['dead.1']);
  expect([existsSync(dead.root), existsSync(living.root)]).toEqual([false, true]);
  // A start waits for the sweep, so the sweep does not wait for removals.
  expect(await listTrash(folder.home)).toEqual([expect.stringMatching(/^dead\.1\./)]);
  await until(async () => (await listTrash(folder.home)).length === 0);
});

test('20 sandboxes that are made at the same time get 20 different users', async () => {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'true');
  const names = Array.from({ length: 20 }, (_, index) => `t${index}`);
  const made = await Promise.all(
    names.map((trialId) => createSandbox({ backend, trialId, attempt: 1, home: folder.home, task })),
  );
  expect(new Set(made.map(({ uid, name }) => uid ?? name)).size).toBe(20);
});

test('a sandbox whose trial id would lead out of the sandboxes’ folder is refused', async () => {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'true');
  await expect(createSandbox({ backend, home: folder.home, trialId: '../x', attempt: 1, task })).rejects.toThrow(
    /not valid/,
  );
});

test('a sandbox that cannot be made because the disk is full fails with a SandboxError, which blames the host', async () => {
  const full = Object.assign(new Error('no space'), { code: 'ENOSPC' });
  await expect(hostWork('sandbox t.1', () => Promise.reject(full))).rejects.toMatchObject({
    name: 'SandboxError',
    message: expect.stringContaining('the disk is full'),
  });
});

test('a task whose environment is larger than its `storage_mb` is refused', async () => {
  await using folder = await temporaryHome();
  const toml = '[environment]\nstorage_mb = 0.001';
  const task = await taskWith(folder.home, 'true', { 'environment/big': 'x'.repeat(5000), 'task.toml': toml });
  await expect(createSandbox({ backend, ...id, home: folder.home, task })).rejects.toMatchObject({ code: 'bad_input' });
});

test('a task without an image of its own has its environment’s files over those of the run’s image', async () => {
  await using folder = await temporaryHome();
  const files = join(folder.home, 'files');
  await writeFiles(folder.home, { 'files/a': 'image', 'files/kept': 'image', 'files/d/x': 'image', 'host/x': 'host' });
  symlinkSync(join(folder.home, 'host'), join(files, 'link'));
  const environment = { 'environment/a': 'task', 'environment/d/y': 'task', 'environment/link/x': 'task' };
  const task = await taskWith(folder.home, 'true', environment);
  const { work } = await createSandbox({ backend, ...id, home: folder.home, task, image: imageWith(files) });
  const text = (path: string): string => readFileSync(join(work, path), 'utf8');
  expect(['a', 'kept', 'd/x', 'd/y', 'link/x'].map(text)).toEqual(['task', 'image', 'image', 'task', 'task']);
  expect(lstatSync(join(work, 'link')).isDirectory()).toBe(true);
  expect(readFileSync(join(folder.home, 'host/x'), 'utf8')).toBe('host');
  const own = { ...task, image: { name: 'example:1' } };
  const other = await createSandbox({ backend, ...id, home: folder.home, task: own, image: imageWith(files) });
  expect(readFileSync(join(other.work, 'a'), 'utf8')).toBe('image');
});

const imageWith = (files: string) => ({ id: 'sha256:1', workdir: '/app', files, env: {} });

test('the instruction takes the place of an image’s link, and the file of this host that it names stays as it is', async () => {
  await using folder = await temporaryHome();
  const [files, secret] = [join(folder.home, 'files'), join(folder.home, 'secret')];
  await writeFiles(folder.home, { secret: 'secret' });
  mkdirSync(files);
  symlinkSync(secret, join(files, 'instruction.md'));
  const task = await taskWith(folder.home, 'true');
  const { work } = await createSandbox({ backend, ...id, home: folder.home, task, image: imageWith(files) });
  expect(lstatSync(join(work, 'instruction.md')).isFile()).toBe(true);
  expect(readFileSync(join(work, 'instruction.md'), 'utf8')).toBe('Do it.');
  expect(readFileSync(secret, 'utf8')).toBe('secret');
});
