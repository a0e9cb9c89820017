import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { linkCheckpoint } from './link-checkpoint.ts';

let home: string;
beforeEach(async () => void (home = await mkdtemp(join(tmpdir(), 'trialgate-link-'))));
afterEach(async () => rm(home, { recursive: true }));

async function checkpoint(name: string): Promise<string> {
  const folder = join(home, 'checkpoints', name);
  await mkdir(join(folder, 'trainer'), { recursive: true });
  await writeFile(join(folder, 'config.json'), '{}');
  await writeFile(join(folder, 'trainer/exp_avg.safetensors'), 'moments');
  await writeFile(join(home, 'model.safetensors'), 'weights');
  await symlink(join(home, 'model.safetensors'), join(folder, 'model.safetensors'));
  await writeFile(
    join(folder, 'manifest.json'),
    JSON.stringify({
      run_id: 'first',
      version: 3,
      checkpoint_sha256: name,
      optimizer_steps: 7,
      canary: { token_ids: [1] },
    }),
  );
  return folder;
}

test('a fork’s version 0 has the parent’s weights and optimizer state, also after the parent’s checkpoint was removed', async () => {
  const parent = await checkpoint('parent');
  const fork = await linkCheckpoint(parent, 'second');
  expect((await stat(join(fork, 'trainer/exp_avg.safetensors'))).nlink).toBe(2);
  await rm(parent, { recursive: true });
  expect(await readFile(join(fork, 'trainer/exp_avg.safetensors'), 'utf8')).toBe('moments');
  expect(await readFile(join(fork, 'model.safetensors'), 'utf8')).toBe('weights');
  expect(JSON.parse(await readFile(join(fork, 'manifest.json'), 'utf8'))).toEqual({
    run_id: 'second',
    version: 0,
    checkpoint_sha256: 'parent',
    optimizer_steps: 7,
    canary: { token_ids: [1] },
  });
});

test('each fork has a checkpoint folder of its own, and a retry of making it returns the same folder', async () => {
  const parent = await checkpoint('parent');
  const fork = await linkCheckpoint(parent, 'second');
  expect(await linkCheckpoint(parent, 'second')).toBe(fork);
  expect(await linkCheckpoint(parent, 'third')).not.toBe(fork);
  expect((await readdir(join(home, 'checkpoints'))).length).toBe(3);
});

test('a fork of a checkpoint that is being removed (`keep_checkpoints`) is refused and leaves no folder', async () => {
  const parent = await checkpoint('parent');
  await rm(join(parent, 'manifest.json'));
  await expect(linkCheckpoint(parent, 'second')).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining('no longer there'),
  });
  expect(await readdir(join(home, 'checkpoints'))).toEqual(['parent']);
});
