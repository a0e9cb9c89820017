import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { and, eq } from 'drizzle-orm';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { deleteRun } from '../../store/queries/delete-run.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { batches, iterations, policyVersions, runs, trials } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { readRunRecord } from '../show/run-record.ts';
import { runTable } from '../show/run-table.ts';
import { findGarbage, removeGarbage } from './collect-garbage.ts';
import { sizeOf, useByFolder } from './disk-use.ts';
import { exportPolicy } from './export-policy.ts';
import { keptByRuns, useByRun } from './use-by-run.ts';

const { signal } = new AbortController();
const store = useDatabase();
let home = '';
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'trialgate-disk-'));
  await store.db.delete(runs);
});
afterEach(() => rm(home, { recursive: true }));

async function write(path: string, text: string, daysAgo = 0): Promise<string> {
  const file = join(home, path);
  await mkdir(join(file, '..'), { recursive: true });
  await writeFile(file, text);
  const at = new Date(Date.now() - daysAgo * 24 * 3600_000);
  await utimes(file, at, at);
  await utimes(join(file, '..'), at, at);
  return file;
}

const config = runConfig.parse({ model: '/models/tiny', tasks: ['t'], iterations: 1 });

/** Makes a run with checkpoints of these versions and one batch file. */
async function runWith(id: string, versions: number[]): Promise<void> {
  await store.db.insert(runs).values({ id, config });
  for (const version of versions) {
    const folder = `checkpoints/${id}-${version}`;
    for (const name of [
      'model.safetensors',
      'config.json',
      'manifest.json',
      'trainer/master.safetensors',
      'replay/batch.arrow',
    ])
      await write(`${folder}/${name}`, `${name} of ${version}`);
    await store.db.insert(policyVersions).values({
      runId: id,
      version,
      stepKey: `${id}${version}`,
      checkpoint: join(home, folder),
      checkpointSha256: `${version}`,
      canary: { token_ids: [], logprobs: [] },
    });
  }
  await store.db.insert(iterations).values({ runId: id, iteration: 0, take: 1, policyVersion: 0 });
  const path = await write(`batches/${id}.arrow`, 'samples');
  await store.db.insert(batches).values({ runId: id, iteration: 0, take: 1, sha256: id, path, samples: 1, trials: 1 });
  await openAttempt(store.db, { trialId: `${id}-0`, attempt: 1, runId: id });
}

test('an exported policy is a model’s folder with a card, without the trainer’s state', async () => {
  await runWith('first', [0, 1, 2]);
  await rm(join(home, 'checkpoints/first-2'), { recursive: true });
  const folder = join(home, 'out/model');
  await mkdir(join(home, 'out'));
  expect(await exportPolicy(store.db, { runId: 'first' }, folder, { signal })).toBe(1);
  expect((await readdir(folder)).toSorted()).toEqual(['README.md', 'config.json', 'model.safetensors']);
  expect(await readFile(join(folder, 'model.safetensors'), 'utf8')).toBe('model.safetensors of 1');
  const card = await readFile(join(folder, 'README.md'), 'utf8');
  expect(card).toMatch(/^---\nbase_model: tiny\n/);
  expect(card).toContain('`first@1`');
  expect(card).toMatch(/^max_prompt_length: \d+\nmax_response_length: \d+$/m);
  expect(card).toMatch(/^constrained_decoding: enforce$/m);
  expect(await readdir(join(home, 'out'))).toEqual(['model']);
});

test('an adapter is exported alone, without links to its base; a run of whole models has none to export', async () => {
  await runWith('first', [1]);
  const at = (name: string) => join(home, name);
  const exported = (to: string) => exportPolicy(store.db, { runId: 'first' }, at(to), { adapter: true, signal });
  await expect(exported('none')).rejects.toThrow('so version 1 has no adapter: export it without --adapter');
  for (const name of ['adapter_model.safetensors', 'adapter_config.json', 'base/config.json'])
    await write(`checkpoints/first-1/${name}`, name);
  for (const name of ['model.safetensors', 'config.json']) await rm(at(`checkpoints/first-1/${name}`));
  await exported('adapter');
  expect((await readdir(at('adapter'))).toSorted()).toEqual([
    'README.md',
    'adapter_config.json',
    'adapter_model.safetensors',
  ]);
});

test('a policy that cannot be exported is refused, and nothing is written', async () => {
  await runWith('first', [0]);
  const folder = join(home, 'model');
  const refused = (of: { runId: string; version?: number }, to = folder) => exportPolicy(store.db, of, to, { signal });
  await expect(refused({ runId: 'first', version: 7 })).rejects.toThrow(
    'run first has no policy version 7. Versions with a checkpoint: 0',
  );
  await expect(refused({ runId: 'nobody' })).rejects.toThrow('there is no run nobody');
  await expect(refused({ runId: 'first' }, home)).rejects.toThrow('exists already');
  expect(existsSync(folder)).toBe(false);
});

test('`export` and `show` say that a checkpoint was pruned when its run completed, and `gc` lists what is left of it', async () => {
  await runWith('first', [0, 1, 2]);
  const take = { iteration: 0, take: 1 };
  const first = and(eq(policyVersions.runId, 'first'), eq(policyVersions.version, 1));
  await store.db
    .update(policyVersions)
    .set({ ...take, prunedAt: new Date() })
    .where(first);
  await rm(join(home, 'checkpoints/first-1/manifest.json'));
  await write('checkpoints/first-1/config.json', 'x', 2);
  await expect(exportPolicy(store.db, { runId: 'first', version: 1 }, join(home, 'model'), { signal })).rejects.toThrow(
    'the checkpoint of policy version 1 of run first was pruned when the run completed: its run file keeps only the best, the last and those of `keep_interval` (`keep_checkpoints_at_end: all` keeps all). Versions with a checkpoint: 0, 2',
  );
  const record = await readRunRecord(store.db, 'first');
  expect(record.iterations.map(({ checkpoint }) => checkpoint?.pruned_at)).toEqual([expect.stringMatching(/^20.*Z$/)]);
  expect(runTable(record)).toContain('(keep_checkpoints_at_end): the checkpoints of policy 1');
  expect((await findGarbage(store.db, home)).map(({ path }) => path)).toEqual([join(home, 'checkpoints/first-1')]);
});

test('a deleted run leaves no row, and names the files that no other run uses', async () => {
  await runWith('first', [0, 1]);
  await runWith('second', [0]);
  const shared = { runId: 'second', iteration: 0, take: 2, sha256: 'first', path: join(home, 'batches/first.arrow') };
  await store.db.insert(batches).values({ ...shared, samples: 1, trials: 1 });
  expect(await deleteRun(store.db, 'first')).toEqual({
    checkpoints: [join(home, 'checkpoints/first-0'), join(home, 'checkpoints/first-1')],
    batches: [],
  });
  expect((await store.db.select().from(runs)).map(({ id }) => id)).toEqual(['second']);
  const left = await store.db.select({ id: trials.id }).from(trials);
  expect(left.map(({ id }) => id)).not.toContain('first-0');
  expect(left.map(({ id }) => id)).toContain('second-0');
  expect(await deleteRun(store.db, 'first')).toBeUndefined();
});

test('garbage is what no run names and what is old, never what is being made or in use', async () => {
  await runWith('first', [0]);
  await write('checkpoints/lost/model.safetensors', 'x', 2);
  await write('checkpoints/.tmp-being-made/model.safetensors', 'x', 0);
  await write('batches/lost.arrow', 'x', 2);
  await write('batches/fresh.arrow', 'x', 0);
  await write('environments/python-old/bin', 'x', 40);
  await write('environments/python-new/bin', 'x', 3);
  await write('repositories/old/size.json', '{}', 40);
  await write('repositories/used/size.json', '{}', 3);
  await write('images/old/file', 'x', 40);
  await write('images/used/file', 'x', 3);
  const garbage = await findGarbage(store.db, home);
  expect(garbage.map(({ path }) => path.slice(home.length + 1)).toSorted()).toEqual([
    'batches/lost.arrow',
    'checkpoints/lost',
    'environments/python-old',
    'images/old',
    'repositories/old',
  ]);
  await removeGarbage(garbage);
  expect(await findGarbage(store.db, home)).toEqual([]);
  expect(await readdir(join(home, 'checkpoints'))).toEqual(['.tmp-being-made', 'first-0']);
});

test('a checkpoint from which a fork computes the trainer state of its version 0 is no garbage, though no row names it', async () => {
  await runWith('first', [0]);
  await rm(join(home, 'checkpoints/first-0/trainer'), { recursive: true });
  const manifest = { run_id: 'first', version: 2, checkpoint_sha256: 'x' };
  const steps = [
    ['first-0', 'linked-2'],
    ['linked-2', 'linked-1'],
  ] as const;
  for (const [name, parent] of steps)
    await write(
      `checkpoints/${name}/manifest.json`,
      JSON.stringify({ ...manifest, replay: { parent, batch_path: 'replay/batch.arrow' } }),
      2,
    );
  await write('checkpoints/linked-1/manifest.json', JSON.stringify(manifest), 2);
  expect(await findGarbage(store.db, home)).toEqual([]);
  await deleteRun(store.db, 'first');
  expect((await findGarbage(store.db, home)).map(({ path }) => basename(path)).toSorted()).toEqual([
    'first-0',
    'linked-1',
    'linked-2',
  ]);
});

test('the disk’s use is given by run, the most first, with the command that deletes one', async () => {
  expect(keptByRuns(await useByRun(store.db, home))).toBe('no run has checkpoints here');
  await runWith('small', [0]);
  await runWith('large', [0, 1]);
  await store.db.insert(runs).values({ id: 'none', config });
  await write('checkpoints/large-1/model.safetensors', 'x'.repeat(3_000_000));
  const used = await useByRun(store.db, home);
  expect(used).toMatchObject([
    { run: 'large', checkpoints: 2 },
    { run: 'small', checkpoints: 1 },
    { run: 'none', bytes: 0 },
  ]);
  expect(keptByRuns(used)).toMatch(
    /^2 runs use [23]\.\d MiB for checkpoints and batches: `npx trialgate rm RUN` deletes a run that has ended/,
  );
});

test('the disk’s use is given by folder, the largest first, in units that people read', async () => {
  await write('small/a', 'x');
  await write('large/a', 'x'.repeat(300_000));
  expect((await useByFolder(home)).map(({ folder }) => folder)).toEqual(['large', 'small']);
  expect([0, 1023, 1024, 1536, 5 * 2 ** 30, 300 * 2 ** 20].map(sizeOf)).toEqual([
    '0 B',
    '1023 B',
    '1.0 KiB',
    '1.5 KiB',
    '5.0 GiB',
    '300 MiB',
  ]);
});
