import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { linkCheckpoint, replayedFrom } from './link-checkpoint.ts';

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

/** A checkpoint `parent` without a written trainer state: it is computed from the checkpoint `written` and a batch. */
async function replayed(): Promise<{ parent: string; written: string; batch: string }> {
  const written = await checkpoint('written');
  await writeFile(join(written, 'trainer/state.json'), '{}');
  const parent = await checkpoint('parent');
  await rm(join(parent, 'trainer'), { recursive: true });
  const batch = join(home, 'batch.arrow');
  await writeFile(batch, 'samples');
  const file = join(parent, 'manifest.json');
  const manifest: object = JSON.parse(await readFile(file, 'utf8'));
  await writeFile(file, JSON.stringify({ ...manifest, replay: { parent: 'written', batch_path: batch } }));
  return { parent, written, batch };
}

test('a fork of a version whose trainer state is not written has links to the checkpoints from which it is computed', async () => {
  const { parent, written } = await replayed();
  expect(await replayedFrom(parent)).toEqual([written]);
  const fork = await linkCheckpoint(parent, 'second');
  await rm(parent, { recursive: true });
  await rm(written, { recursive: true });
  const [before] = await replayedFrom(fork);
  expect(await readFile(join(before ?? '', 'trainer/state.json'), 'utf8')).toBe('{}');
  expect(JSON.parse(await readFile(join(before ?? '', 'manifest.json'), 'utf8'))).toMatchObject({
    run_id: 'second',
    version: 3,
  });
});

test('such a fork, and a fork of it, have the batch too, after the first run and its files were removed', async () => {
  const { parent, written, batch } = await replayed();
  const fork = await linkCheckpoint(parent, 'second');
  const forkOfFork = await linkCheckpoint(fork, 'third');
  for (const gone of [parent, written, batch, fork]) await rm(gone, { recursive: true });
  const { replay } = JSON.parse(await readFile(join(forkOfFork, 'manifest.json'), 'utf8'));
  expect(await readFile(join(forkOfFork, replay.batch_path), 'utf8')).toBe('samples');
});

test('a fork whose trainer state cannot be computed, because the batch is gone, is refused and leaves no draft', async () => {
  const { parent, batch } = await replayed();
  await rm(batch);
  await expect(linkCheckpoint(parent, 'second')).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining(`its batch ${batch}, from which it would be computed again, cannot be linked`),
  });
  expect((await readdir(join(home, 'checkpoints'))).filter((name) => name.startsWith('.tmp-'))).toEqual([]);
});

test('a fork of a version whose trainer state is pruned, also while it is being linked, is refused and leaves no folder', async () => {
  const { parent, written } = await replayed();
  await writeFile(join(written, 'trainer/pruned'), '');
  expect(await replayedFrom(written)).toEqual([]);
  const refused = { code: 'bad_input', message: expect.stringContaining(`checkpoint ${written} was pruned`) };
  await expect(linkCheckpoint(written, 'second')).rejects.toMatchObject(refused);
  await expect(linkCheckpoint(parent, 'second')).rejects.toMatchObject(refused);
  expect((await readdir(join(home, 'checkpoints'))).toSorted()).toEqual(['parent', 'written']);
});

test('nothing is kept for the trainer state of a version whose state was pruned without ever being written', async () => {
  const { parent, written } = await replayed();
  expect(await replayedFrom(parent)).toEqual([written]);
  await mkdir(join(parent, 'trainer'));
  await writeFile(join(parent, 'trainer/pruned'), '');
  expect(await replayedFrom(parent)).toEqual([]);
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
