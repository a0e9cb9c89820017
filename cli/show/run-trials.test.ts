import { and, eq, not } from 'drizzle-orm';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { readEvaluations } from '../../store/queries/read-evaluations.ts';
import { readIterations } from '../../store/queries/read-iterations.ts';
import { groups, iterations, policyVersions, runs, trials } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { readRunRecord } from './run-record.ts';
import { runTable } from './run-table.ts';
import { listRunTrials, trialsTable } from './run-trials.ts';

const store = useDatabase();
const GROUP = { kind: 'train' as const, take: 1, agent: 'oneshot', size: 2, policyVersion: 0 };

/** Stores a run with one finished iteration of two groups, whose trials have these rewards. */
async function runWith(runId: string, rewards: (number | null)[][], updates: number): Promise<void> {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
  await store.db.insert(runs).values({ id: runId, config });
  await store.db.insert(iterations).values({ runId, iteration: 0, take: 1, policyVersion: 0, status: 'done' });
  const version = { runId, checkpoint: '/c', checkpointSha256: 'c', canary: { token_ids: [], logprobs: [] } };
  await store.db.insert(policyVersions).values([
    { ...version, version: 0, stepKey: 'base' },
    { ...version, version: 1, stepKey: 'k', iteration: 0, take: 1, metrics: { 'actor/updates': updates } },
  ]);
  for (const [ordinal, ofGroup] of rewards.entries()) {
    const groupId = `${runId}/0.1/${ordinal}`;
    await store.db.insert(groups).values({ ...GROUP, id: groupId, runId, iteration: 0, ordinal, task: '/tasks/add' });
    await store.db.insert(trials).values(
      ofGroup.map((reward, trialIndex) => ({
        id: `${runId}-0.1-${ordinal}-${trialIndex}`,
        runId,
        groupId,
        trialIndex,
        task: '/tasks/add',
        agent: 'oneshot',
        attempt: 1,
        ...(reward === null
          ? { outcome: 'agent_error' as const, reason: 'KeyError: 7' }
          : { outcome: 'scored' as const, rewards: { reward } }),
      })),
    );
  }
}

test('a run’s trials are listed with their rewards and reasons, all of them or those of one outcome', async () => {
  await runWith('listed', [[1, null]], 1);
  const all = await listRunTrials(store.db, 'listed');
  expect(all).toMatchObject([
    { trial: 'listed-0.1-0-0', iteration: 0, outcome: 'scored', reward: 1, reason: null },
    { trial: 'listed-0.1-0-1', outcome: 'agent_error', reward: null, reason: 'KeyError: 7' },
  ]);
  const failed = await listRunTrials(store.db, 'listed', { outcome: 'agent_error', iteration: 0 });
  expect(trialsTable(failed)).toMatch(/listed-0\.1-0-1 +add +oneshot +1 +agent_error +– +0 +KeyError: 7/);
  expect(trialsTable(await listRunTrials(store.db, 'listed', { outcome: 'open' }))).toBe('no such trials');
  await expect(listRunTrials(store.db, 'unknown')).rejects.toThrow(/there is no run unknown/);
});

test('an agent from a file is listed by the name in the file, and by the name of the file when the file is gone', async () => {
  await runWith('named', [[1, 1]], 1);
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-agent-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, 'agent.yaml');
  await writeFile(file, 'name: reviewer\ncommand: [/bin/true]\n');
  const isFirst = eq(trials.id, 'named-0.1-0-0');
  await store.db.update(trials).set({ agent: file }).where(isFirst);
  await store.db
    .update(trials)
    .set({ agent: '/gone/solver.yaml' })
    .where(and(eq(trials.runId, 'named'), not(isFirst)));
  const lines = await listRunTrials(store.db, 'named');
  expect(lines.map(({ agent, agent_name }) => [agent, agent_name])).toEqual([
    [file, 'reviewer'],
    ['/gone/solver.yaml', 'solver'],
  ]);
  expect(trialsTable(lines)).toMatch(/named-0\.1-0-0 +add +reviewer +1/);
});

test('the table of a run says so when rewards are above 0 and no trial has a reward of 1 or more', async () => {
  await runWith('partial', [[0.5, 0.25]], 1);
  expect(runTable(await readRunRecord(store.db, 'partial'))).toContain('0.375   0.375  0.125  0%: no reward ≥ 1');
  await runWith('lost', [[0, 0]], 1);
  expect(runTable(await readRunRecord(store.db, 'lost'))).not.toContain('no reward ≥ 1');
});

test('a reward that misses 1 by rounding alone is a pass wherever passes are counted, and no lower one is', async () => {
  const rewards = [[1, 0.9999999], [0.99999]];
  await runWith('near', rewards, 1);
  await runWith('near-held-out', rewards, 1);
  await store.db
    .update(groups)
    .set({ kind: 'eval', iteration: null, take: null })
    .where(eq(groups.runId, 'near-held-out'));
  expect((await readRunRecord(store.db, 'near')).iterations[0]?.pass_rate).toBeCloseTo(2 / 3, 12);
  const pages = { from: 0, limit: 1, weights: {}, hasEnded: true };
  expect(await readIterations(store.db, 'near', pages)).toMatchObject([{ reward: { count: 3, passed: 2 } }]);
  const own = (await readRunRecord(store.db, 'near-held-out')).evaluations;
  for (const { passAt } of [{ passAt: own[0]?.pass_at }, ...(await readEvaluations(store.db, 'near-held-out', {}))])
    expect(passAt).toEqual({ 1: expect.closeTo(2 / 3, 12), 2: 1, 3: 1 });
});

test('`show` says that a step has no learning signal when the rewards of each group are equal', async () => {
  await runWith(
    'flat',
    [
      [1, 1],
      [0, 0],
    ],
    0,
  );
  const record = await readRunRecord(store.db, 'flat');
  expect(record.iterations).toMatchObject([{ groups: 2, equal_groups: 2 }]);
  expect(runTable(record)).toContain('iteration 0 has no learning signal: 2 of 2 groups have equal rewards. Choose');
  await runWith(
    'broken',
    [
      [1, 1],
      [null, null],
    ],
    0,
  );
  const broken = await readRunRecord(store.db, 'broken');
  expect(broken.iterations).toMatchObject([{ groups: 2, equal_groups: 1, unrewarded_groups: 1 }]);
  expect(runTable(broken)).toContain('1 of 2 groups have equal rewards, 1 has no reward. Choose');
  expect(runTable(broken)).not.toContain('had equal rewards');
  await runWith(
    'mixed',
    [
      [1, 0],
      [0, 0],
    ],
    1,
  );
  const mixed = runTable(await readRunRecord(store.db, 'mixed'));
  expect(mixed).not.toContain('no learning signal');
  expect(mixed).toContain('iteration 0: 1 of 2 groups had equal rewards');
});
