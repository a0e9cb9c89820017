import { tableFromIPC } from 'apache-arrow';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import type { Sample } from './sample.ts';
import { writeBatch } from './write-batch.ts';

let folder: string;
beforeEach(async () => void (folder = await mkdtemp(join(tmpdir(), 'trialgate-batch-'))));
afterEach(async () => rm(folder, { recursive: true }));

const sample = (
  trialId: string,
  companions: Sample['companions'] = [],
  turnRewards: Record<string, number[]> = {},
): Sample => ({
  tokenIds: Int32Array.from([5, 6, 7]),
  lossMask: Int8Array.from([0, 1, 1]),
  logprobs: Float32Array.from([0, -0.25, -1.5]),
  samplingMask: [null, [4, 6], null],
  policyVersions: [null, 3, 3],
  temperature: 0.5,
  rewards: { tests: 0.5, style: 1 },
  turns: [null, 0, 2],
  turnRewards,
  companions,
  groupId: 'r/0.1/0',
  trialId,
  attempt: 2,
  callIds: ['c'],
});

test('a batch of the same samples is written as the same file, whose name is its SHA-256 digest', async () => {
  const [first, second] = [await writeBatch(folder, [sample('a')]), await writeBatch(folder, [sample('a')])];
  expect(second).toEqual(first);
  expect(await readdir(folder)).toEqual([`${first.sha256}.arrow`]);
  expect(
    createHash('sha256')
      .update(await readFile(first.path))
      .digest('hex'),
  ).toBe(first.sha256);
});

test('the batch file holds every value of a sample unchanged', async () => {
  const { path } = await writeBatch(folder, [sample('a'), sample('b')]);
  const table = tableFromIPC(await readFile(path));
  const row = table.get(1)?.toJSON() ?? {};
  expect(table.numRows).toBe(2);
  expect(row).toMatchObject({ temperature: 0.5, group_id: 'r/0.1/0', trial_id: 'b', attempt: 2 });
  expect([...row.token_ids]).toEqual([5, 6, 7]);
  expect([...row.loss_mask]).toEqual([0, 1, 1]);
  expect([...row.logprobs]).toEqual([0, -0.25, -1.5]);
  expect([...row.sampling_mask].map((ids) => ids && [...ids])).toEqual([null, [4, 6], null]);
  expect([...row.policy_versions]).toEqual([null, 3, 3]);
  expect(row.rewards.toJSON()).toEqual({ style: 1, tests: 0.5 });
});

test('each row of a batch file has the rewards of the other trials in its sample’s baseline, and of no others', async () => {
  const companions: Record<string, number>[] = [{ tests: 0, style: 0.25 }, { tests: 1 }];
  const earned = (rewards: Record<string, number>) => ({ rewards, turnRewards: {} });
  const { path } = await writeBatch(folder, [
    sample('a'),
    sample('b', companions.map(earned)),
    sample('c', [earned({ tests: 0.75 })]),
  ]);
  const table = tableFromIPC(await readFile(path));
  const read = table.toArray().map((row) => [...row.companions].map((companion) => companion.toJSON()));
  expect(read).toEqual([[], companions, [{ tests: 0.75 }]]);
});

test('a batch file has columns for turns and their rewards only when a verifier gave rewards turn by turn', async () => {
  const { path } = await writeBatch(folder, [
    sample('a'),
    sample('b', [{ rewards: { tests: 0.5 }, turnRewards: { tests: [0.5] } }], { style: [0, 0.25, 0.75], tests: [] }),
  ]);
  const table = tableFromIPC(await readFile(path));
  const named = (map: { toJSON: () => Record<string, Iterable<number>> }) =>
    Object.fromEntries(Object.entries(map.toJSON()).map(([name, values]) => [name, [...values]]));
  const read = table.toArray().map((row) => ({
    turns: [...row.turns],
    own: named(row.turn_rewards),
    companions: [...row.companion_turn_rewards].map(named),
  }));
  expect(read).toEqual([
    { turns: [null, 0, 2], own: {}, companions: [] },
    { turns: [null, 0, 2], own: { style: [0, 0.25, 0.75], tests: [] }, companions: [{ tests: [0.5] }] },
  ]);
  const without = tableFromIPC(await readFile((await writeBatch(folder, [sample('a')])).path));
  expect(without.schema.names).not.toContain('turns');
});

test('a batch whose whole file is too large to be hashed is refused for good, and leaves no file', async () => {
  const { path } = await writeBatch(folder, [sample('a')]);
  const { size } = await stat(path);
  await rm(path);
  await expect(writeBatch(folder, [sample('a')], size - 1)).rejects.toMatchObject({
    ...{ type: 'batch_too_large', nonRetryable: true },
    message: expect.stringMatching(/file of this batch takes more than 2 GiB.*fewer groups/),
  });
  expect(await readdir(folder)).toEqual([]);
  await writeBatch(folder, [sample('a')], size);
});

test('a batch that was made for router replay has a column of experts also where no call has any, by which the trainer knows it', async () => {
  const { path } = await writeBatch(folder, [{ ...sample('a'), expertRows: [] }]);
  const table = tableFromIPC(await readFile(path));
  const row = table.get(0)?.toJSON() ?? {};
  expect([...row.routed_experts]).toEqual([]);
  const without = tableFromIPC(await readFile((await writeBatch(folder, [sample('a')])).path));
  expect(without.schema.names).not.toContain('routed_experts');
});

const PYTHON = join(REPOSITORY, '.trialgate/venv/bin/python');
const READ = `
import json, sys
from pathlib import Path
from trialgate_gpu.batch import read_batch
for sample in read_batch(Path(sys.argv[1]), sys.argv[2], 3, with_experts=True):
    print(json.dumps([[each.start, each.end, each.form, each.rows.hex()] for each in sample.routed_experts or []]))
`;

test.skipIf(!existsSync(PYTHON))(
  'the trainer reads of a batch file the experts that each sample’s calls recorded, byte by byte',
  async () => {
    const rows = Buffer.from(Array.from({ length: 70_000 }, (_, i) => i % 256));
    const { path, sha256 } = await writeBatch(folder, [
      {
        ...sample('a'),
        expertRows: [
          { start: 0, end: 2, form: 'uint8', rows: Uint8Array.of(1, 255) },
          { start: 2, end: 3, form: 'npy', rows: rows.subarray(1) },
        ],
      },
      { ...sample('b'), expertRows: [] },
      { ...sample('c'), expertRows: [{ start: 0, end: 3, form: 'uint16', rows }] },
    ]);
    const env = { ...process.env, PYTHONPATH: join(REPOSITORY, 'gpu-workers') };
    const { stdout } = await promisify(execFile)(PYTHON, ['-B', '-c', READ, path, sha256], {
      env,
      maxBuffer: 2 ** 24,
    });
    expect(
      stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual([
      [
        [0, 2, 'uint8', '01ff'],
        [2, 3, 'npy', rows.toString('hex', 1)],
      ],
      [],
      [[0, 3, 'uint16', rows.toString('hex')]],
    ]);
  },
);
