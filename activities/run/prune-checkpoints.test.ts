import { Client } from '@temporalio/client';
import { and, eq } from 'drizzle-orm';
import { access, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { groups, iterations, policyVersions, runs, trials, type RunStatus } from '../../store/schema.ts';
import { depsOver } from '../../tests/support/harness/deps-over.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { runWithVersion } from '../../tests/support/scenarios/run-with-version.ts';
import type { Deps } from '../deps.ts';
import { openTake } from '../iteration/open-take.ts';
import { forkBase } from './fork-base.ts';
import { bestVersion } from './best-version.ts';
import { pruneCheckpoints } from './prune-checkpoints.ts';
import { setRunStatus } from './set-run-status.ts';

const store = useDatabase();
let home = '';
let deps: Deps;
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'trialgate-prune-'));
  deps = depsOver({ db: store.db, temporal: new Client(), home });
});
beforeEach(async () => {
  for (const table of [trials, groups, runs]) await store.db.delete(table);
  await rm(join(home, 'checkpoints'), { recursive: true, force: true });
});
afterAll(() => rm(home, { recursive: true }));

const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 4, reward_weights: { style: 0.5 } });
type Rewards = Record<string, number>;

/** Adds the rewards of a take, or of an evaluation. */
async function addGroup(
  id: string,
  policyVersion: number,
  rewards: Rewards[],
  take?: { iteration: number; take: number },
  task = 't',
) {
  const group = { id, runId: 'run', ordinal: 0, task, agent: 'a', size: rewards.length, policyVersion };
  await store.db.insert(groups).values({ ...group, kind: take ? 'train' : 'eval', ...take });
  const rows = rewards.map((named, trialIndex) => ({
    id: `${id}-${trialIndex}`,
    runId: 'run',
    groupId: id,
    trialIndex,
    outcome: 'scored' as const,
    rewards: named,
  }));
  if (rows.length > 0) await store.db.insert(trials).values(rows);
}

/** Makes a run in which each iteration has these rewards and makes the next version. */
async function trained(rewards: Rewards[][], settings = {}): Promise<void> {
  for (let version = 0; version <= rewards.length; version++)
    await runWithVersion(store.db, home, 'run', version, { ...config, ...settings });
  for (const [iteration, ofIteration] of rewards.entries()) {
    const take = { iteration, take: 1 };
    const made = { policyVersion: iteration, trainedVersion: iteration + 1 };
    await store.db.insert(iterations).values({ runId: 'run', ...take, status: 'done', ...made });
    await store.db
      .update(policyVersions)
      .set(take)
      .where(versionIs(iteration + 1));
    await addGroup(`run/${iteration}.1/0`, iteration, ofIteration, take);
  }
}
const versionIs = (version: number) => and(eq(policyVersions.runId, 'run'), eq(policyVersions.version, version));
const evaluated = (version: number, reward: number, id = `eval@${version}`) =>
  addGroup(`run/${id}/0`, version, [{ tests: reward }]);
const best = async () => (await bestVersion(store.db, 'run', config.reward_weights))?.version ?? null;
const end = (status: RunStatus = 'completed') => setRunStatus(deps)({ runId: 'run', status });

/** The versions whose checkpoint is there. */
async function left(): Promise<number[]> {
  const rows = await store.db.select().from(policyVersions).where(eq(policyVersions.runId, 'run'));
  const there = await Promise.all(
    rows.map(({ version, checkpoint }) =>
      access(checkpoint).then(
        () => [version],
        () => [],
      ),
    ),
  );
  return there.flat().toSorted((a, b) => a - b);
}
const marked = async () => {
  const rows = await store.db.select().from(policyVersions).where(eq(policyVersions.runId, 'run'));
  return rows.flatMap(({ version, prunedAt }) => (prunedAt ? [version] : [])).toSorted((a, b) => a - b);
};

const RISING = [[{ tests: 0 }], [{ tests: 1 }], [{ tests: 0.5 }], [{ tests: 0.25 }]];

test('the best version is the one whose iteration had the highest mean of the weighted rewards, and of equal ones the later', async () => {
  await trained([[{ tests: 0 }], [{ tests: 1 }, { tests: 0 }], [{ style: 1 }, { style: 1 }], [{ tests: 0.4 }]]);
  expect(await best()).toBe(2);
});

test('the run’s own evaluations decide alone which version is best; those on demand and those of superseded takes do not count', async () => {
  await trained(RISING);
  await evaluated(2, 0.9, 'eval@2.1');
  expect(await best()).toBe(1);
  await evaluated(2, 0.3);
  await evaluated(3, 0.3);
  await evaluated(9, 1);
  expect(await best()).toBe(3);
});

test('the best version is chosen among evaluations of the same tasks: the latest tasks that judge a version besides version 0 and the last one', async () => {
  await trained(RISING);
  const onOthers = (version: number, reward: number) =>
    addGroup(`run/eval@${version}/1`, version, [{ tests: reward }], undefined, 'other');
  await evaluated(1, 0.9);
  await evaluated(2, 0.8);
  await evaluated(4, 0.1);
  await onOthers(4, 0.1);
  expect(await best()).toBe(1);
  await evaluated(3, 0.2);
  await onOthers(3, 0.3);
  expect(await best()).toBe(3);
});

test('evaluations of the same tasks are compared, also when no trial of one of these tasks has a reward', async () => {
  await trained(RISING);
  for (const [version, reward] of [
    [1, 0.5],
    [2, 0.9],
    [3, 0.4],
  ] as const) {
    await evaluated(version, reward);
    await addGroup(`run/eval@${version}/1`, version, version === 2 ? [] : [{ tests: reward }], undefined, 'other');
  }
  expect(await best()).toBe(2);
});

test('evaluations of version 0 and of the last version alone do not decide which version is best', async () => {
  await trained(RISING);
  await evaluated(0, 0.1);
  await evaluated(4, 0.2);
  expect(await best()).toBe(1);
});

test('a version whose checkpoint was removed is not the best one, and rewards of any finite size are compared', async () => {
  await trained([[{ tests: -1e200 }, { tests: 1e200 }], [{ tests: 1e300 }], [{ tests: 1e250 }], [{ tests: 1 }]]);
  expect(await best()).toBe(1);
  await rm(join(home, 'checkpoints/run-1'), { recursive: true });
  expect(await best()).toBe(2);
});

test('a run without rewards has no best version', async () => {
  await trained([]);
  expect(await best()).toBeNull();
});

test('a completed run keeps the checkpoints of its best and its last version, and that of version 0, which has only links', async () => {
  await trained(RISING);
  await end();
  expect(await left()).toEqual([0, 1, 4]);
  expect(await marked()).toEqual([2, 3]);
});

test('a completed run with `keep_interval: 3` also keeps the checkpoints of versions 3, 6, ...', async () => {
  await trained(RISING, { keep_interval: 3 });
  await end();
  expect(await left()).toEqual([0, 1, 3, 4]);
  expect(await marked()).toEqual([2]);
});

test('a completed run keeps the checkpoints from which the trainer state of one that stays is computed', async () => {
  await trained(RISING);
  const last = join(home, 'checkpoints/run-4');
  await rm(join(last, 'trainer'), { recursive: true });
  const replay = { parent: 'run-3', batch_path: '/batch' };
  const manifest = { run_id: 'run', version: 4, checkpoint_sha256: 'x', replay };
  await writeFile(join(last, 'manifest.json'), JSON.stringify(manifest));
  await end();
  expect(await left()).toEqual([0, 1, 3, 4]);
});

test('a run with `keep_checkpoints_at_end: all` keeps all', async () => {
  await trained(RISING, { keep_checkpoints_at_end: 'all' });
  await end();
  expect(await left()).toEqual([0, 1, 2, 3, 4]);
});

test.each(['failed', 'cancelled', 'blocked'] as const)(
  'a %s run keeps all, because it may be resumed',
  async (status) => {
    await trained(RISING);
    await end(status);
    expect(await left()).toEqual([0, 1, 2, 3, 4]);
  },
);

test('pruning that was cut off between choosing and deleting removes the same checkpoints when it is repeated', async () => {
  await trained(RISING);
  await store.db.update(policyVersions).set({ prunedAt: new Date() }).where(versionIs(2));
  await end();
  await end();
  expect(await left()).toEqual([0, 1, 4]);
});

test('a checkpoint that a step removed earlier is not marked as pruned, and one that another kept version shares stays', async () => {
  await trained(RISING);
  await rm(join(home, 'checkpoints/run-3'), { recursive: true });
  await store.db
    .update(policyVersions)
    .set({ checkpoint: join(home, 'checkpoints/run-4') })
    .where(versionIs(2));
  await end();
  expect(await marked()).toEqual([]);
  expect(await left()).toEqual([0, 1, 2, 4]);
});

test('a try to prune that goes on after the run was resumed removes nothing', async () => {
  await trained(RISING);
  await end('running');
  await pruneCheckpoints(store.db, 'run');
  expect(await left()).toEqual([0, 1, 2, 3, 4]);
});

test('a fork, and an iteration, that would begin from a pruned version are refused with the reason, and a fork made before has its own files', async () => {
  await trained(RISING);
  await forkBase(store.db, { runId: 'fork', config, from: { runId: 'run', version: 2 } });
  await end();
  const fork = (version: number) => forkBase(store.db, { runId: 'other', config, from: { runId: 'run', version } });
  await expect(fork(2)).rejects.toThrow(
    'the checkpoint of policy version 2 of run run was pruned when the run completed: its run file keeps only the best, the last and those of `keep_interval` (`keep_checkpoints_at_end: all` keeps all); there are 0, 1, 4',
  );
  const again = openTake(deps)({ runId: 'run', iteration: 3, policyVersion: 3, resume: false });
  await expect(again).rejects.toMatchObject({
    type: 'bad_input',
    nonRetryable: true,
    message: expect.stringContaining('the iteration cannot run again: the checkpoint of policy version 3'),
  });
  const [version] = await store.db.select().from(policyVersions).where(eq(policyVersions.runId, 'fork'));
  await access(join(version?.checkpoint ?? '', 'trainer/exp_avg.safetensors'));
  await fork(1);
});
