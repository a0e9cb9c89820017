import { eq } from 'drizzle-orm';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Database } from '../../store/database.ts';
import { policyVersions, runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { runWithVersion } from '../../tests/support/scenarios/run-with-version.ts';
import { forkBase } from './fork-base.ts';
import { runConfig } from '../../core/run-config/run-config.ts';

const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 3 });
const store = useDatabase();
let db: Database;
let home: string;
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'trialgate-fork-'));
  db = store.db;
  for (const version of [1, 2]) await runWithVersion(db, home, 'first', version, config);
});
afterAll(() => rm(home, { recursive: true }));

test('a fork begins from its parent version’s weights and optimizer state, and the store records which version that is', async () => {
  await forkBase(db, { runId: 'second', config, from: { runId: 'first', version: 2 } });
  const [run] = await db.select().from(runs).where(eq(runs.id, 'second'));
  expect(run).toMatchObject({ forkedFrom: 'first@2', rescores: null, status: 'running' });
  const [base] = await db.select().from(policyVersions).where(eq(policyVersions.runId, 'second'));
  expect(base).toMatchObject({
    version: 0,
    parentVersion: null,
    checkpointSha256: 'sha of first@2',
    canary: { token_ids: [1, 2] },
  });
  expect(await readFile(join(base?.checkpoint ?? '', 'trainer/exp_avg.safetensors'), 'utf8')).toBe('moments');
});

test('a fork that is refused creates no run, and the error says which versions can be forked', async () => {
  const from = (version: number, runId = 'third') => forkBase(db, { runId, config, from: { runId: 'first', version } });
  await expect(from(7)).rejects.toThrow('run first has no policy version 7; there are 1, 2');
  await rm(join(home, 'checkpoints/first-1'), { recursive: true });
  await expect(from(1)).rejects.toThrow(
    'the checkpoint of policy version 1 of run first was removed (`keep_checkpoints`); there are 2',
  );
  await expect(from(2, 'second')).rejects.toThrow('run second exists: choose another --run');
  const failing = forkBase(db, {
    runId: 'third',
    config,
    from: { runId: 'first', version: 2 },
    also: () => Promise.reject(new Error('cut')),
  });
  await expect(failing).rejects.toThrow('cut');
  expect((await db.select({ id: runs.id }).from(runs)).map(({ id }) => id).toSorted()).toEqual(['first', 'second']);
});

test('a fork of a version whose trainer state was pruned is refused, and the error says which can be forked and how to use its weights', async () => {
  const pruned = await runWithVersion(db, home, 'long', 3, config);
  await runWithVersion(db, home, 'long', 4, config);
  await writeFile(join(pruned, 'trainer/pruned'), '');
  const made = forkBase(db, { runId: 'branch', config, from: { runId: 'long', version: 3 } });
  await expect(made).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(
      /of long@3 would .* was pruned: .*`keep_trainer_state: all`.* Versions with a state, .*: 4\. "npx trialgate export long@3 FOLDER"/,
    ),
  });
  expect(await db.select().from(runs).where(eq(runs.id, 'branch'))).toEqual([]);
  await forkBase(db, { runId: 'branch', config, from: { runId: 'long', version: 4 } });
});

test('a fork with other LoRA settings than its parent is refused before it is made', async () => {
  const other = runConfig.parse({ ...config, lora_rank: 8 });
  const made = forkBase(db, { runId: 'adapted', config: other, from: { runId: 'first', version: 2 } });
  await expect(made).rejects.toThrow('first@2 has lora_rank 0, and the fork asks for {"lora_rank":8');
  expect(await db.select().from(runs).where(eq(runs.id, 'adapted'))).toEqual([]);
});
