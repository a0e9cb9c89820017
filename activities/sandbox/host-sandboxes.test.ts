import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { HostSandboxes } from './host-sandboxes.ts';
import { taskWith, temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import type { Task } from '../../core/task.ts';
import type { SandboxBackend } from './backend.ts';
import { openBackend } from './backends.ts';
import { Starts } from './starts.ts';

const backend = await openBackend();
const wanted = (task: Task) => ({ task, backend, image: null, network: null, verifier: null });

const never = new AbortController().signal;
const key = { trialId: 't', attempt: 1 };

async function hostWithTask(idleMs?: number) {
  const folder = await temporaryHome();
  const host = new HostSandboxes(folder.home, 2, { idleMs });
  await mkdir(join(folder.home, 'sandboxes'));
  const left = async () => (await readdir(join(folder.home, 'sandboxes'))).filter((name) => !name.startsWith('.'));
  return {
    host,
    left,
    task: await taskWith(folder.home, 'true'),
    [Symbol.asyncDispose]: async () => {
      // An idle sandbox may be in the middle of its removal.
      await vi.waitFor(() => expect(host.slots.free).toBe(2));
      await folder[Symbol.asyncDispose]();
    },
  };
}

test('a sandbox that cannot be opened frees its slot on the host', async () => {
  await using here = await hostWithTask();
  await writeFiles(here.task.folder, { 'environment/data': 'more than nothing' });
  const full = { ...here.task, environment: { ...here.task.environment, storageMb: 0 } };
  await expect(here.host.open(key, wanted(full), never)).rejects.toThrow('environment');
  expect(here.host.slots.free).toBe(2);
  expect(await here.left()).toEqual([]);
});

test('when the opening of a sandbox is cancelled, at any moment, no files are left and the slot is free', async () => {
  await using here = await hostWithTask();
  for (let ticks = 0; ticks < 40; ticks++) {
    const controller = new AbortController();
    const opening = here.host.open(key, wanted(here.task), controller.signal).catch(() => 'cancelled');
    for (let i = 0; i < ticks; i++) await new Promise((resolve) => setImmediate(resolve));
    controller.abort(new Error('cancelled'));
    if ((await opening) !== 'cancelled') break;
    expect(here.host.slots.free).toBe(2);
    expect(await here.left()).toEqual([]);
  }
});

test('two tries to open the sandbox of one attempt take one slot and share the sandbox', async () => {
  await using here = await hostWithTask();
  await Promise.all([here.host.open(key, wanted(here.task), never), here.host.open(key, wanted(here.task), never)]);
  expect(here.host.slots.free).toBe(1);
  expect(await here.host.use(key, async ({ sandbox }) => readdir(sandbox.work))).toEqual(['instruction.md']);
  await here.host.close(key);
  expect(here.host.slots.free).toBe(2);
  expect(await here.left()).toEqual([]);
});

test('a sandbox that nobody uses for the idle time is removed and frees its slot', async () => {
  await using here = await hostWithTask(20);
  await here.host.open(key, wanted(here.task), never);
  for (let i = 0; i < 200 && here.host.slots.free < 2; i++) await sleep(10);
  expect(here.host.slots.free).toBe(2);
  expect(await here.left()).toEqual([]);
});

test('a sandbox in use is never removed as idle, however long ago it was opened', async () => {
  await using here = await hostWithTask(50);
  await here.host.open(key, wanted(here.task), never);
  await here.host.open(key, wanted(here.task), never);
  const names = await here.host.use(key, async () => {
    await sleep(200);
    return here.left();
  });
  expect(names).toHaveLength(1);
});

test('an opening whose engine hangs fails after its time, gives its slot back, and leaves nothing when the engine goes on', async () => {
  await using folder = await temporaryHome();
  const host = new HostSandboxes(folder.home, 2, { starts: new Starts({ seconds: 0.05 }) });
  const task = await taskWith(folder.home, 'true');
  const [engine, made] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const hanging: SandboxBackend = {
    ...backend,
    start: async (request) => {
      await engine.promise;
      return backend.start(request).finally(made.resolve);
    },
  };
  await expect(host.open(key, { ...wanted(task), backend: hanging }, never)).rejects.toThrow('did not start within');
  expect(host.slots.free).toBe(2);
  engine.resolve();
  await made.promise;
  await vi.waitFor(async () => {
    const names = await readdir(join(folder.home, 'sandboxes'));
    expect(names.filter((name) => !name.startsWith('.'))).toEqual([]);
  });
});
