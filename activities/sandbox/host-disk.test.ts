import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isDiskFullForOthers } from './host-disk.ts';
import { SmallDisk } from '../../tests/support/harness/small-disk.ts';

const refusal = await SmallDisk.refusal();
let folder: string;
let disk: SmallDisk | null = null;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trialgate-disk-'));
  if (refusal === null) disk = await SmallDisk.mount(folder, 8);
});
afterAll(async () => {
  await disk?.unmount();
  await rm(folder, { recursive: true, force: true });
});

async function sandbox(name: string, bytes: number): Promise<{ root: string }> {
  const root = join(folder, name);
  await mkdir(join(root, 'work'), { recursive: true });
  await writeFile(join(root, 'work/file'), Buffer.alloc(bytes));
  return { root };
}

test('a disk with free space does not count as full for a sandbox', async () => {
  expect(await isDiskFullForOthers(await sandbox('roomy', 1000), 64)).toBe(false);
});

test.skipIf(refusal !== null)(
  'a full disk counts as the host’s fault for a small sandbox, but not for the sandbox that filled the disk',
  async ({ signal }) => {
    const [modest, greedy] = [await sandbox('modest', 1000), await sandbox('greedy', 3 * 2 ** 20)];
    const found = disk?.whileFull(
      async () => [await isDiskFullForOthers(modest, 1), await isDiskFullForOthers(greedy, 1)],
      signal,
    );
    expect(await found).toEqual([true, false]);
    expect(await isDiskFullForOthers(modest, 1)).toBe(false);
  },
);
