import { tableFromIPC } from 'apache-arrow';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { copyBatch, openBatch } from './copy-batch.ts';
import type { Sample } from './sample.ts';
import { writeBatch } from './write-batch.ts';

let folder: string;
beforeEach(async () => void (folder = await mkdtemp(join(tmpdir(), 'trialgate-copy-'))));
afterEach(async () => rm(folder, { recursive: true }));

const sample = (trialId: string, rewards: Record<string, number>): Sample => ({
  companions: [],
  tokenIds: Int32Array.from([5, 6, 7]),
  lossMask: Int8Array.from([0, 1, 1]),
  logprobs: Float32Array.from([0, -0.25, -1.5]),
  samplingMask: [null, [4, 6], null],
  policyVersions: [null, 3, 3],
  temperature: 0.5,
  rewards,
  groupId: 'r/0.1/0',
  trialId,
  attempt: 2,
  turns: [null, 0, 0],
  turnRewards: {},
  callIds: ['c'],
});

test('a copy of a batch for another run has the same samples and a digest of its own', async () => {
  const original = await writeBatch(folder, [sample('a', { tests: 1, style: 0.5 }), sample('b', { tests: 0 })]);
  const opened = await openBatch(original.path);
  expect(opened.rewards).toEqual(['style', 'tests']);
  const first = await copyBatch(opened, 'first');
  expect(await copyBatch(opened, 'first')).toEqual(first);
  const second = await copyBatch(opened, 'second');
  expect(new Set([original.sha256, first.sha256, second.sha256]).size).toBe(3);
  const rows = async (path: string) => JSON.stringify(tableFromIPC(await readFile(path)).toArray());
  expect(await rows(first.path)).toBe(await rows(original.path));
  expect(tableFromIPC(await readFile(first.path)).schema.metadata.get('run')).toBe('first');
});

test('a batch whose file was removed is refused with a message that names the file', async () => {
  await expect(openBatch(join(folder, 'gone.arrow'))).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining('gone.arrow'),
  });
});
