import { Client } from '@temporalio/client';
import { and, eq } from 'drizzle-orm';
import { resolve } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { attempts, groups, iterations, runs, trials } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import type { Deps } from '../deps.ts';
import { Graders } from '../reward/graders.ts';
import { HostSandboxes } from '../sandbox/host-sandboxes.ts';
import { extendGroup } from '../rollout/extend-group.ts';
import { openGroup } from '../rollout/open-group.ts';
import { openTake } from './open-take.ts';
import { prepareRun } from '../run/prepare-run.ts';
import { runConfig } from '../../core/run-config/run-config.ts';

const store = useDatabase();
const config = runConfig.parse({ model: 'm', tasks: [resolve('tasks/train')], iterations: 3 });
const deps = (): Deps => ({
  db: store.db,
  temporal: new Client(),
  gatewayUrls: [],
  home: '/',
  secret: '',
  hostQueue: '',
  sandboxes: new HostSandboxes('/', 1),
  graders: new Graders('/'),
});
beforeEach(async () => {
  await store.db.delete(runs);
  await store.db.insert(runs).values({ id: 'run', config });
});

const open = (resume = false) => openTake(deps())({ runId: 'run', iteration: 0, policyVersion: 0, resume });
const planOf = (ordinal: number, take = 1) => ({
  id: `run/0.${take}/${ordinal}`,
  runId: 'run',
  kind: 'train' as const,
  iteration: 0,
  take,
  ordinal,
  task: 't',
  agent: 'a',
  size: 2,
  policyVersion: 0,
});
const groupOf = async (ordinal: number, values: Partial<typeof groups.$inferInsert> = {}) => {
  await store.db.insert(groups).values({ ...planOf(ordinal), ...values });
};

const sealed = async (
  outcome: 'scored' | 'infra_error',
  trial: { trialId: string; groupId: string; trialIndex: number },
) => {
  await openAttempt(store.db, { attempt: 1, runId: 'run', ...trial });
  await sealAttempt(store.db, {
    trialId: trial.trialId,
    outcome,
    rewards: outcome === 'scored' ? { reward: 1 } : undefined,
  });
};

test('a retry of the activity opens the same empty take; a take that has results is continued only by a `resume`', async () => {
  expect(await open()).toEqual({ take: 1, superseded: [] });
  expect(await open()).toEqual({ take: 1, superseded: [] });
  await store.db.update(iterations).set({ trainedVersion: 1 });
  expect((await open()).take).toBe(2);
  // A batch made of groups that earlier iterations began is a result too.
  await groupOf(0, { iteration: 7, batchIteration: 0, batchTake: 2 });
  expect((await open()).take).toBe(3);
  await groupOf(1, { take: 3, id: 'run/0.3/1' });
  expect((await open(true)).take).toBe(3);
});

test('opening a take lists the superseded takes’ workflows that may still run: the train step, and groups with unfinished trials', async () => {
  await open();
  for (const ordinal of [0, 1, 2]) await groupOf(ordinal, { endedAt: ordinal === 0 ? null : new Date() });
  await openAttempt(store.db, { trialId: 'straggler', attempt: 1, runId: 'run', groupId: 'run/0.1/1', trialIndex: 1 });
  for (const trialIndex of [0, 1])
    await sealed('scored', { trialId: `done-${trialIndex}`, groupId: 'run/0.1/2', trialIndex });
  // One trial is between two attempts, the other has none yet.
  await groupOf(4, { endedAt: new Date() });
  await sealed('infra_error', { trialId: 'again', groupId: 'run/0.1/4', trialIndex: 0 });
  // No trial runs so long after a deadline.
  await groupOf(5, { endedAt: new Date(), deadlineAt: new Date(Date.now() - 2 * 86_400_000) });
  const superseded = ['run/0.1', 'run/0.1/0', 'run/0.1/1', 'run/0.1/4'];
  expect(await open()).toEqual({ take: 2, superseded });
  await groupOf(3, { take: 2, id: 'run/0.2/3' });
  expect(await open(true)).toEqual({ take: 2, superseded });
});

test('a trial that is skipped between two attempts gets no further attempt, and its last attempt keeps its outcome', async () => {
  await sealed('infra_error', { trialId: 'skipped', groupId: 'run/0.1/0', trialIndex: 1 });
  await sealAttempt(store.db, { trialId: 'skipped', outcome: 'cancelled', reason: 'skipped by a person', final: true });
  expect(await store.db.select().from(trials).where(eq(trials.id, 'skipped'))).toMatchObject([
    { outcome: 'cancelled', reason: 'skipped by a person' },
  ]);
  expect(await store.db.select().from(attempts).where(eq(attempts.trialId, 'skipped'))).toMatchObject([
    { outcome: 'infra_error' },
  ]);
});

test('of two new deadlines for a group the later deadline holds, in whatever order the extensions arrive', async () => {
  await groupOf(0);
  const [longer, shorter] = ['2030-01-01T00:10:00.000Z', '2030-01-01T00:05:00.000Z'];
  for (const until of [longer, shorter]) await extendGroup(deps())({ id: 'run/0.1/0', until });
  expect((await store.db.select().from(groups))[0]?.deadlineAt?.toISOString()).toBe(longer);
});

test('a trial that is sealed without an attempt’s number has its open attempt closed', async () => {
  await openAttempt(store.db, { trialId: 'cut', attempt: 3, runId: 'run', groupId: 'run/0.1/0', trialIndex: 1 });
  await sealAttempt(store.db, { trialId: 'cut', outcome: 'truncated', reason: 'cut between two attempts' });
  expect(
    await store.db
      .select()
      .from(attempts)
      .where(and(eq(attempts.trialId, 'cut'), eq(attempts.attempt, 3))),
  ).toMatchObject([{ outcome: 'truncated' }]);
});

test('a run that is started again keeps its changed settings and goes on after its last finished iteration', async () => {
  await store.db
    .update(runs)
    .set({ config: { ...config, group_size: 5 }, status: 'blocked', reason: 'the disk is full' });
  await store.db
    .insert(iterations)
    .values({ runId: 'run', iteration: 0, take: 1, policyVersion: 0, trainedVersion: 1, status: 'done' });
  const position = await prepareRun(deps())({ runId: 'run', runFile: config });
  expect(position).toMatchObject({ iteration: 1, policyVersion: 1, config: { group_size: 5 } });
  expect(await store.db.select().from(runs)).toMatchObject([
    { status: 'running', reason: null, config: { group_size: 5 } },
  ]);
});

test('a group’s quorum is at most its own size, also after the run’s settings changed', async () => {
  await open();
  await store.db.update(runs).set({ config: { ...config, group_size: 8, group_quorum: 6 } });
  expect(await openGroup(deps())({ ...planOf(0), trialPrefix: 'p' })).toMatchObject({ quorum: 2 });
  const [row] = await store.db.select().from(groups);
  expect((row?.deadlineAt?.getTime() ?? 0) - (row?.openedAt.getTime() ?? 0)).toBeGreaterThan(
    config.deadlines.group * 1000 - 60_000,
  );
});
