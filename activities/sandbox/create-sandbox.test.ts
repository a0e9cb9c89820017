import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, symlinkSync } from 'node:fs';
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
import { sandboxWith, shell, taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';

const id = { trialId: 't', attempt: 1 };

test('a sandbox has its task’s files, but neither the task’s tests nor its Dockerfile', async () => {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'true', {
    'environment/app/data.txt': 'x',
    'environment/Dockerfile': 'FROM python\nWORKDIR /app\nCOPY . /app/',
  });
  const { work, root } = await createSandbox({ ...id, home: folder.home, task });
  expect(readdirSync(work).toSorted()).toEqual(['app', 'instruction.md']);
  expect(readdirSync(root).toSorted()).toEqual(['home', 'logs', 'shm', 'tmp', 'work']);
  expect(await readFile(join(work, 'app/data.txt'), 'utf8')).toBe('x');
});

test('a link in a task’s environment is refused and no sandbox is left', async () => {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'true', { 'environment/a.txt': 'x' });
  symlinkSync('/etc/passwd', join(task.folder, 'environment', 'link'));
  await expect(createSandbox({ ...id, home: folder.home, task })).rejects.toMatchObject({
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
  const second = await createSandbox({ ...id, home: folder.home, task });
  expect(readdirSync(second.work)).toEqual(['instruction.md']);
  await running;
});

test('removing a sandbox once or twice leaves no file of it', async () => {
  await using folder = await temporaryHome();
  const sandbox = await sandboxWith(folder.home, { 'deep/file': '' });
  for (let time = 0; time < 2; time += 1) await destroySandbox({ ...id, home: folder.home });
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
    names.map((trialId) => createSandbox({ trialId, attempt: 1, home: folder.home, task })),
  );
  expect(new Set(made.map(({ uid, name }) => uid ?? name)).size).toBe(20);
});

test('a sandbox whose trial id would lead out of the sandboxes’ folder is refused', async () => {
  await using folder = await temporaryHome();
  const task = await taskWith(folder.home, 'true');
  await expect(createSandbox({ home: folder.home, trialId: '../x', attempt: 1, task })).rejects.toThrow(/not valid/);
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
  await expect(createSandbox({ ...id, home: folder.home, task })).rejects.toMatchObject({ code: 'bad_input' });
});
