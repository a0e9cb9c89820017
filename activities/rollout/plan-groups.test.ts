import { ApplicationFailure } from '@temporalio/common';
import { and, eq, inArray } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { attempts, batches, groups, iterations, quarantinedTasks, trials } from '../../store/schema.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { chooseTrials } from '../batch/choose-trials.ts';
import { endGroup } from './end-group.ts';
import { planGroups } from './plan-groups.ts';
import { readRun } from '../run/read-run.ts';

import {
  begin,
  db,
  end,
  names,
  openTake,
  plan,
  runId,
  sample,
  step,
  tasks,
  usePlanning,
} from '../../tests/support/harness/planning.ts';

usePlanning();

test('a run with staleness 0 starts the groups of one batch and no more before its train step', async () => {
  await begin({});
  expect(await plan(0)).toMatchObject({
    open: [{ ordinal: 0 }, { ordinal: 1 }],
    eligible: 0,
    wanted: 4,
    isReady: false,
  });
  await end(`${runId}/0.1/0`, 'scored', 'scored');
  expect(names((await plan(0)).open)).toEqual(['0.1/1']);
  await end(`${runId}/0.1/1`, 'scored', 'scored');
  expect(await plan(0)).toMatchObject({ open: [], eligible: 4, isReady: true });
});

test('a run with staleness 1 samples the next batch while one is ready, and starts no more groups than it may train on', async () => {
  await begin({ max_staleness: 1, stragglers: 'cancel' });
  expect(names((await plan(0)).open)).toEqual(['0.1/0', '0.1/1', '0.1/2', '0.1/3']);
  for (const ordinal of [1, 2]) await end(`${runId}/0.1/${ordinal}`, 'scored', 'scored');
  const ready = await plan(0);
  expect([names(ready.open), ready.isReady]).toEqual([['0.1/0', '0.1/3'], true]);
  expect(await step(0)).toEqual(['0.1/1', '0.1/2']);
  expect(names((await plan(1)).open)).toEqual(['0.1/0', '0.1/3', '1.1/0', '1.1/1']);
});

test('a group that is too old is not trained on, and new groups start instead of it', async () => {
  await begin({ max_staleness: 1, stragglers: 'cancel' });
  await plan(0);
  await sample(`${runId}/0.1/0`, 0);
  for (const ordinal of [1, 2]) await end(`${runId}/0.1/${ordinal}`, 'scored', 'scored');
  await step(0);
  await plan(1);
  for (const ordinal of [0, 1]) await end(`${runId}/1.1/${ordinal}`, 'scored', 'scored');
  await step(1);
  const { open, stale } = await plan(2);
  expect(stale).toEqual([{ id: `${runId}/0.1/0`, trialIndexes: [0, 1] }]);
  // A group that waited for a place has sampled nothing yet: its age counts from its first token.
  expect(names(open)).toEqual(['0.1/0', '0.1/3', '2.1/0', '2.1/1']);
  await end(`${runId}/0.1/0`, 'scored', 'scored');
  expect(await plan(2)).toMatchObject({ stale: [], eligible: 0 });
  expect(
    await db
      .select()
      .from(groups)
      .where(eq(groups.id, `${runId}/0.1/0`)),
  ).toMatchObject([{ dropped: 'stale' }]);
});

test('a train step that has enough trials still waits for a group that no later step could use', async () => {
  await begin({ max_staleness: 1 });
  await plan(0);
  await sample(`${runId}/0.1/0`, 0);
  for (const ordinal of [1, 2]) await end(`${runId}/0.1/${ordinal}`, 'scored', 'scored');
  await step(0);
  await plan(1);
  for (const id of ['0.1/3', '1.1/0']) await end(`${runId}/${id}`, 'scored', 'scored');
  // Only this step can still use group 0.1/0.
  expect((await plan(1)).isReady).toBe(false);
  await end(`${runId}/0.1/0`, 'scored', 'scored');
  expect((await plan(1)).isReady).toBe(true);
  expect(await step(1)).toEqual(['0.1/0', '0.1/3']);
});

test('a run runs at most `max_concurrent_groups` groups at the same time', async () => {
  await begin({ max_staleness: 3, max_concurrent_groups: 3 });
  expect((await plan(0)).open).toHaveLength(3);
  await end(`${runId}/0.1/0`, 'scored', 'scored');
  expect(names((await plan(0)).open)).toEqual(['0.1/1', '0.1/2', '0.1/3']);
});

test('a new take uses no groups of the superseded one and samples the same tasks', async () => {
  await begin({ max_staleness: 1, stragglers: 'cancel' });
  const first = await plan(0);
  for (const ordinal of [0, 1]) await end(`${runId}/0.1/${ordinal}`, 'scored', 'scored');
  await step(0);
  const second = await plan(1);
  for (const ordinal of [2, 3]) await end(`${runId}/0.1/${ordinal}`, 'scored', 'scored');
  await chooseTrials(db, await readRun(db, runId), { runId, iteration: 1, take: 1 });
  await db
    .update(iterations)
    .set({ status: 'superseded' })
    .where(and(eq(iterations.runId, runId), eq(iterations.iteration, 1)));
  await openTake(1, 2, 1);
  const again = await plan(1, { take: 2 });
  expect(names(again.open)).toEqual(['1.2/0', '1.2/1']);
  expect(again.eligible).toBe(4);
  expect(again.open.map(({ task }) => task)).toEqual(
    second.open.filter(({ iteration }) => iteration === 1).map(({ task }) => task),
  );
  expect(new Set([...first.open, ...again.open].map(({ task }) => task)).size).toBe(3);
});

test('groups whose rewards are all equal are not trained on, and at most `max_replaced` of them are replaced', async () => {
  await begin({ filter_groups: { enable: true, max_replaced: 1 } });
  await plan(0);
  await end(`${runId}/0.1/0`, ['scored', 1], ['scored', 1]);
  expect(names((await plan(0)).open)).toEqual(['0.1/1', '0.1/2']);
  await end(`${runId}/0.1/1`, ['scored', 0], ['scored', 0]);
  expect(await plan(0)).toMatchObject({ eligible: 2 });
});

test('a run samples no further group of a task whose groups failed `quarantine_after` times in a row', async () => {
  await begin({ tasks, groups_per_iteration: 3, quarantine_after: 2, iterations: 100 });
  for (let failures = 0, round = 0; failures < 2 && round < 20; round++) {
    const { open } = await plan(0);
    const bad = open.find(({ task }) => task === tasks[0]);
    if (!bad) break;
    for (const { id, task } of open) {
      if (task === tasks[0]) await end(id, 'verifier_error', 'verifier_error');
      else await end(id, 'scored', 'scored');
    }
    failures++;
    // The other groups make room for the task's next group.
    await db
      .update(groups)
      .set({ dropped: 'stale' })
      .where(
        and(
          eq(groups.runId, runId),
          inArray(
            groups.id,
            open.filter(({ task }) => task !== tasks[0]).map(({ id }) => id),
          ),
        ),
      );
  }
  expect(await db.select().from(quarantinedTasks).where(eq(quarantinedTasks.runId, runId))).toMatchObject([
    { task: tasks[0], reason: expect.stringContaining('verifier_error') },
  ]);
  const { open } = await plan(0);
  expect(open).toHaveLength(3);
  expect(open.map(({ task }) => task)).not.toContain(tasks[0]);
});

test('when most trials of an iteration end as `infra_error`, the rollout fails, quarantines no task, and runs the same groups after a resume', async () => {
  await begin({});
  await plan(0);
  await end(`${runId}/0.1/0`, 'infra_error', 'infra_error');
  await end(`${runId}/0.1/1`, 'infra_error', 'infra_error');
  const error: unknown = await plan(0).catch((failure: unknown) => failure);
  expect(error).toBeInstanceOf(ApplicationFailure);
  expect(error).toMatchObject({
    nonRetryable: true,
    message: expect.stringContaining("4 of the iteration's first 4 trials failed: infra_error of port 1234"),
  });
  expect(await db.select().from(quarantinedTasks).where(eq(quarantinedTasks.runId, runId))).toEqual([]);
  const { open } = await plan(0, { reopen: true });
  expect(names(open)).toEqual(['0.1/0', '0.1/1']);
});

test('when all tasks are quarantined, the rollout fails with the most frequent reason and the outcomes of the failed groups', async () => {
  await begin({ tasks: tasks.slice(0, 1), quarantine_after: 1 });
  await plan(0);
  await end(`${runId}/0.1/0`, 'verifier_error', 'verifier_error');
  await expect(plan(0)).rejects.toMatchObject({
    type: 'all_quarantined',
    message: expect.stringContaining(
      `all 1 tasks of run ${runId} are quarantined, most often because 1 groups in a row failed: verifier_error of port 1234. The trials of failed groups ended as 2 verifier_error. `,
    ),
  });
});

test('trials for which no host opened a sandbox count as failed, but their task is not quarantined', async () => {
  await begin({ quarantine_after: 1 });
  await plan(0);
  for (const ordinal of [0, 1]) await end(`${runId}/0.1/${ordinal}`);
  await expect(plan(0)).rejects.toMatchObject({
    nonRetryable: true,
    message: expect.stringMatching(
      /^4 of the iteration's first 4 trials failed: no host opened a sandbox for them\. Repair .* --retry-failed"$/,
    ),
  });
  expect(await db.select().from(groups).where(eq(groups.runId, runId))).toMatchObject([
    { dropped: 'failed' },
    { dropped: 'failed' },
  ]);
  expect(await db.select().from(quarantinedTasks).where(eq(quarantinedTasks.runId, runId))).toEqual([]);
});

test('a group whose trials are all excluded from training (`truncated: mask`) is replaced', async () => {
  await begin({ truncated: 'mask' });
  await plan(0);
  await end(`${runId}/0.1/0`, ['truncated', 1], ['truncated', 0]);
  const { open, eligible } = await plan(0);
  expect([names(open), eligible]).toEqual([['0.1/1', '0.1/2'], 0]);
});

test('after an iteration’s deadline the rollout starts no group and counts as ready', async () => {
  await begin({});
  const late = await planGroups({ db })({ runId, iteration: 0, take: 1, policyVersion: 0, isOver: true });
  expect(late).toMatchObject({ open: [], eligible: 0, isReady: true });
});

test('a poll of the rollout returns only ids, and no plans, for groups that the workflow knows', async () => {
  await begin({ max_staleness: 1 });
  await plan(0);
  await end(`${runId}/0.1/0`, ['scored', 1], ['infra_error', 0]);
  const { open, plans } = await planGroups({ db })({ runId, iteration: 0, take: 1, policyVersion: 0, known: true });
  expect(open.map((id) => id.slice(runId.length + 1))).toEqual(['0.1/1', '0.1/2', '0.1/3']);
  expect(plans).toEqual([]);
});

test('a group’s progress counts its waiting, running and scored trials, with its deadline', async () => {
  await begin({ group_size: 4 });
  const first = await plan(0);
  expect(first.progress).toEqual([
    [4, 0, 0, null],
    [4, 0, 0, null],
  ]);
  const id = `${runId}/0.1/0`;
  await sample(id, 0);
  await db
    .update(trials)
    .set({ outcome: 'scored', rewards: { reward: 1 } })
    .where(eq(trials.id, `${id}-1`));
  // A trial between two attempts counts as waiting.
  await openAttempt(db, { trialId: `${id}-2`, attempt: 1, runId, groupId: id, trialIndex: 2 });
  await db
    .update(attempts)
    .set({ outcome: 'infra_error', endedAt: new Date() })
    .where(eq(attempts.trialId, `${id}-2`));
  await db
    .update(groups)
    .set({ deadlineAt: new Date(1_800_000_000_400) })
    .where(eq(groups.id, id));
  expect((await plan(0)).progress).toEqual([
    [2, 1, 1, 1_800_000_000_400],
    [4, 0, 0, null],
  ]);
});

test('a resume after an iteration’s batch was written keeps the batch’s trials, ends quarantines and runs only groups of later batches', async () => {
  await begin({ max_staleness: 1 });
  await plan(0);
  await end(`${runId}/0.1/0`, 'scored', 'scored');
  await end(`${runId}/0.1/1`, 'scored', 'infra_error');
  await chooseTrials(db, await readRun(db, runId), { runId, iteration: 0, take: 1 });
  await db.insert(batches).values({ runId, iteration: 0, take: 1, sha256: 's', path: '/b', samples: 3, trials: 3 });
  await db.insert(quarantinedTasks).values({ runId, task: tasks[0] ?? '', reason: 'r' });
  const { open, isReady } = await plan(0, { reopen: true });
  expect([names(open), isReady]).toEqual([['0.1/2', '0.1/3'], true]);
  const used = await db
    .select()
    .from(trials)
    .where(and(eq(trials.runId, runId), eq(trials.batchIteration, 0)));
  expect(used).toHaveLength(3);
  expect(await db.select().from(quarantinedTasks).where(eq(quarantinedTasks.runId, runId))).toEqual([]);
});

test('a resume before a batch was written runs unfinished groups, also of earlier iterations, and makes the chosen trials free again', async () => {
  await begin({ max_staleness: 1, stragglers: 'cancel' });
  await plan(0);
  for (const ordinal of [1, 2]) await end(`${runId}/0.1/${ordinal}`, 'scored', 'scored');
  await step(0);
  await plan(1);
  await end(`${runId}/0.1/0`, 'scored', 'infra_error');
  await end(`${runId}/1.1/0`, 'scored', 'scored');
  await chooseTrials(db, await readRun(db, runId), { runId, iteration: 1, take: 1 });
  const { open, eligible } = await plan(1, { reopen: true });
  expect([names(open), eligible]).toEqual([['0.1/0', '0.1/3', '1.1/1'], 2]);
});

test('a group that was cut because its run was does not count as failed, and runs again after a resume', async () => {
  await begin({ quarantine_after: 1 });
  await plan(0);
  const id = `${runId}/0.1/0`;
  await openAttempt(db, { trialId: `${id}-0`, attempt: 1, runId, groupId: id, trialIndex: 0 });
  await endGroup({ db })({ id, isCut: true });
  await end(`${runId}/0.1/1`, 'scored', 'scored');
  expect(await db.select().from(groups).where(eq(groups.id, id))).toMatchObject([
    { dropped: null, endedAt: expect.any(Date) },
  ]);
  expect(await db.select().from(quarantinedTasks).where(eq(quarantinedTasks.runId, runId))).toEqual([]);
  expect(names((await plan(0, { reopen: true })).open)).toEqual(['0.1/0']);
});

test('a retry of the activity that chooses a batch’s trials chooses the same ones', async () => {
  await begin({ max_staleness: 1, group_size: 2, group_quorum: 1, stragglers: 'carry_over', groups_per_iteration: 1 });
  await plan(0);
  const [first, second] = [`${runId}/0.1/0`, `${runId}/0.1/1`];
  for (const id of [first, second]) {
    await openAttempt(db, { trialId: `${id}-1`, attempt: 1, runId, groupId: id, trialIndex: 1 });
    await end(id, 'scored');
  }
  expect(await step(0)).toEqual(['0.1/0', '0.1/1']);
  await plan(1);
  // This batch has only stragglers: none of its groups is its own.
  for (const id of [first, second])
    await db
      .update(trials)
      .set({ outcome: 'scored', rewards: { reward: 1 } })
      .where(eq(trials.id, `${id}-1`));
  const choose = async () => chooseTrials(db, await readRun(db, runId), { runId, iteration: 1, take: 1 });
  await choose();
  await end(`${runId}/1.1/0`, 'scored', 'scored');
  await choose();
  const used = await db
    .select()
    .from(trials)
    .where(and(eq(trials.runId, runId), eq(trials.batchIteration, 1)));
  expect(used.map(({ id }) => id).toSorted()).toEqual([`${first}-1`, `${second}-1`]);
});
