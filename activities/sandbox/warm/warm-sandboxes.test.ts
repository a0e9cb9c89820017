import { AsyncLocalStorage } from 'node:async_hooks';
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { taskWith, temporaryHome } from '../../../tests/support/harness/sandbox-fixtures.ts';
import type { SandboxBackend } from '../backend.ts';
import { openBackend } from '../backends.ts';
import { HostSandboxes } from '../host-sandboxes.ts';
import { Starts } from '../starts.ts';
import { WarmSandboxes } from './warm-sandboxes.ts';

const never = new AbortController().signal;
const way = { gateway: 'http://127.0.0.1:9' };
/** Real sandboxes of this host, of a kind that starts something ahead. */
const backend: SandboxBackend = { ...(await openBackend()), startAhead: async () => {} };

async function hostWith(count: number, more: { shortage?: () => string | null; idleMs?: number } = {}) {
  const folder = await temporaryHome();
  const [home, starts] = [folder.home, new Starts()];
  const warm = new WarmSandboxes({ home, count, starts, quietMs: 0, shortage: () => null, ...more });
  const host = new HostSandboxes(home, 8, { starts, warm });
  const task = await taskWith(home, 'true');
  const open = async (trialId: string, kind = backend): Promise<string> => {
    const key = { trialId, attempt: 1 };
    await host.open(key, { task, backend: kind, image: null, network: null, verifier: null, way }, never);
    return (await host.use(key, async ({ sandbox }) => sandbox.root)) ?? '';
  };
  return {
    ...{ home, warm, open },
    close: (trialId: string) => host.close({ trialId, attempt: 1 }),
    left: async () => (await readdir(join(home, 'sandboxes'))).filter((name) => !name.startsWith('.')),
    full: () => vi.waitFor(() => expect(warm.size).toBe(count), { timeout: 60_000 }),
    [Symbol.asyncDispose]: async () => {
      await warm.close();
      await folder[Symbol.asyncDispose]();
    },
  };
}

test('a sandbox that was started before is given to one trial only, with its task, and is removed after it', async () => {
  await using here = await hostWith(2);
  // The first trial says what is wanted; nothing waits for it.
  const first = await here.open('first');
  expect(first).toMatch(/first\.1$/);
  await here.full();
  const roots = await Promise.all([here.open('a'), here.open('b')]);
  expect(new Set(roots).size).toBe(2);
  for (const root of roots) {
    expect(root).toMatch(/warm-[0-9a-f]+\.1$/);
    expect(await readdir(join(root, 'work'))).toEqual(['instruction.md']);
  }
  await here.full();
  for (const trial of ['first', 'a', 'b']) await here.close(trial);
  expect([first, ...roots].map(existsSync)).toEqual([false, false, false]);
  const later = await here.open('c');
  expect(roots).not.toContain(later);
  await here.close('c');
});

test('sandboxes are started ahead outside of the trial that asked, so that the log does not name it', async () => {
  await using here = await hostWith(2);
  const underWay = new AsyncLocalStorage<string>();
  const trials: (string | undefined)[] = [];
  const kind = { ...backend, startAhead: async () => void trials.push(underWay.getStore()) };
  await underWay.run('first', () => here.open('first', kind));
  await here.full();
  expect(trials).toEqual([undefined, undefined]);
  await here.close('first');
});

test('sandboxes that wait are removed when the worker stops, and none is started any more', async () => {
  await using here = await hostWith(2);
  await here.open('first');
  await here.full();
  await here.close('first');
  expect(await here.left()).toHaveLength(2);
  await here.warm.close();
  expect(await here.left()).toEqual([]);
  await here.open('second');
  expect(here.warm.size).toBe(0);
  await here.close('second');
  expect(await here.left()).toEqual([]);
});

test('a trial with another kind or network gets none that waits, and those are replaced', async () => {
  await using here = await hostWith(1);
  await here.open('first');
  await here.full();
  const [before] = (await here.left()).filter((name) => name.startsWith('warm-'));
  const other = { ...backend, statement: 'another engine' };
  expect(await here.open('second', other)).toMatch(/second\.1$/);
  await vi.waitFor(async () => expect(await here.left()).not.toContain(before), { timeout: 60_000 });
  await here.full();
  expect(await here.open('third', other)).toMatch(/warm-/);
  for (const trial of ['first', 'second', 'third']) await here.close(trial);
});

test('a kind that starts nothing ahead, and a host that is short of memory, have none that wait', async () => {
  await using here = await hostWith(1);
  await here.open('first', { ...backend, startAhead: undefined });
  await using short = await hostWith(1, { shortage: () => 'no memory' });
  await short.open('first');
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect([here.warm.size, short.warm.size]).toEqual([0, 0]);
  await Promise.all([here.close('first'), short.close('first')]);
});

test('sandboxes that no trial takes for the idle time are removed', async () => {
  await using here = await hostWith(1, { idleMs: 50 });
  const started = vi.fn();
  await here.open('first', { ...backend, startAhead: async () => started() });
  await here.close('first');
  await vi.waitFor(() => expect(started).toHaveBeenCalled(), { timeout: 60_000 });
  await vi.waitFor(async () => expect(await here.left()).toEqual([]), { timeout: 60_000 });
});
