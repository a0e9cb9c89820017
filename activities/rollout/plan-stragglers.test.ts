import { and, eq, isNotNull } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { attempts, groups, trials } from '../../store/schema.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { endGroup } from './end-group.ts';
import { planGroups } from './plan-groups.ts';

import {
  anotherRun,
  begin,
  db,
  end,
  names,
  plan,
  runId,
  sample,
  step,
  usePlanning,
} from '../../tests/support/harness/planning.ts';

usePlanning();

test('a group whose rewards are equal at its quorum keeps its slots until all its trials end, and is then used if the rewards differ', async () => {
  await begin({
    max_staleness: 1,
    group_size: 3,
    group_quorum: 2,
    stragglers: 'carry_over',
    max_concurrent_trials: 4,
    filter_groups: { enable: true },
  });
  await plan(0);
  const quorum = async (ordinal: number) => {
    const id = `${runId}/0.1/${ordinal}`;
    await openAttempt(db, { trialId: `${id}-2`, attempt: 1, runId, groupId: id, trialIndex: 2 });
    await db.insert(trials).values(
      [0, 1].map((trialIndex) => ({
        id: `${id}-${trialIndex}`,
        runId,
        groupId: id,
        trialIndex,
        outcome: 'scored' as const,
        rewards: { reward: 1 },
      })),
    );
    return endGroup({ db })({ id, runsOn: true });
  };
  expect([await quorum(0), await quorum(1)]).toEqual([true, true]);
  expect(names((await plan(0)).open)).toEqual(['0.1/0', '0.1/1', '0.1/2']);
  await end(`${runId}/0.1/0`, ['scored', 1], ['scored', 1], ['scored', 1]);
  await end(`${runId}/0.1/1`, ['scored', 1], ['scored', 1], ['scored', 0]);
  expect(
    await db
      .select()
      .from(groups)
      .where(and(eq(groups.runId, runId), isNotNull(groups.endedAt)))
      .orderBy(groups.ordinal),
  ).toMatchObject([{ dropped: 'no_spread' }, { dropped: null }]);
  expect(await plan(0)).toMatchObject({ eligible: 3 });
});

test('a straggler that is carried over is trained on once, in the next batch', async () => {
  await begin({ max_staleness: 1, group_size: 3, group_quorum: 2, stragglers: 'carry_over', groups_per_iteration: 1 });
  await plan(0);
  const id = `${runId}/0.1/0`;
  await openAttempt(db, { trialId: `${id}-2`, attempt: 1, runId, groupId: id, trialIndex: 2 });
  await end(id, 'scored', 'scored');
  await end(`${runId}/0.1/1`, 'scored', 'scored', 'scored');
  const batchesOf = async (group: string) =>
    (await db.select().from(trials).where(eq(trials.groupId, group)).orderBy(trials.trialIndex)).map(
      (row) => row.batchIteration,
    );
  expect(await step(0)).toEqual(['0.1/0', '0.1/1']);
  expect(await batchesOf(id)).toEqual([0, 0, null]);
  await db
    .update(trials)
    .set({ outcome: 'scored', rewards: { reward: 1 } })
    .where(eq(trials.id, `${id}-2`));
  await plan(1);
  await end(`${runId}/1.1/0`, 'scored', 'scored', 'scored');
  expect(await step(1)).toEqual(['1.1/0']);
  expect(await batchesOf(id)).toEqual([0, 0, 1]);
});

test('a group’s scored trials are trained on in the last step that can use them, even when the group has not reached its quorum', async () => {
  await begin({ max_staleness: 1, group_size: 3, group_quorum: 3, stragglers: 'carry_over', groups_per_iteration: 1 });
  await plan(0);
  const id = `${runId}/0.1/0`;
  await sample(id, 0);
  await end(`${runId}/0.1/1`, 'scored', 'scored', 'scored');
  await step(0);
  await plan(1);
  await openAttempt(db, { trialId: `${id}-2`, attempt: 1, runId, groupId: id, trialIndex: 2 });
  for (const trialIndex of [0, 1])
    await db
      .update(trials)
      .set({ outcome: 'scored', rewards: { reward: trialIndex } })
      .where(eq(trials.id, `${id}-${trialIndex}`));
  expect(await plan(1)).toMatchObject({ eligible: 2 });
  expect(await step(1)).toEqual(['0.1/0']);
  expect(names((await plan(2)).open)).not.toContain('0.1/0');
});

test('a straggler whose workflow was terminated from outside counts as running only until its deadlines have passed', async () => {
  await begin({ max_staleness: 1, group_size: 3, group_quorum: 2, stragglers: 'carry_over', groups_per_iteration: 1 });
  await plan(0);
  const id = `${runId}/0.1/0`;
  await openAttempt(db, { trialId: `${id}-2`, attempt: 1, runId, groupId: id, trialIndex: 2 });
  await end(id, 'scored', 'scored');
  expect(await plan(0)).toMatchObject({ outlived: [id] });
  await db
    .update(attempts)
    .set({ openedAt: new Date(0) })
    .where(eq(attempts.trialId, `${id}-2`));
  expect(await plan(0)).toMatchObject({ outlived: [] });
});

test('a train step waits until at most `max_stale_stragglers` running trials would become too old by it', async () => {
  await begin({
    max_staleness: 1,
    group_size: 3,
    group_quorum: 2,
    stragglers: 'carry_over',
    groups_per_iteration: 1,
    max_stale_stragglers: 1,
  });
  await plan(0);
  const id = `${runId}/0.1/0`;
  await sample(id, 0);
  await end(`${runId}/0.1/1`, 'scored', 'scored', 'scored');
  expect(await plan(0)).toMatchObject({ isReady: true });
  await step(0);
  await plan(1);
  await end(`${runId}/1.1/0`, 'scored', 'scored', 'scored');
  // The group may have ended, so only this number says what is waited for.
  expect(await plan(1)).toMatchObject({ eligible: 3, isReady: false, waitsForLast: 2 });
  expect(await planGroups({ db })({ runId, iteration: 1, take: 1, policyVersion: 1, isOver: true })).toMatchObject({
    isReady: true,
  });
  await db
    .update(trials)
    .set({ outcome: 'scored', rewards: { reward: 1 } })
    .where(eq(trials.id, `${id}-0`));
  expect(await plan(1)).toMatchObject({ isReady: true, waitsForLast: 0 });
});

test('a group starts when a slot is free for some of its trials, without waiting for a slot for each of them', async () => {
  await begin({
    max_staleness: 2,
    group_size: 3,
    group_quorum: 2,
    stragglers: 'carry_over',
    groups_per_iteration: 1,
    max_concurrent_trials: 4,
    max_stale_stragglers: 0,
  });
  expect(names((await plan(0)).open)).toEqual(['0.1/0', '0.1/1']);
  await openAttempt(db, { trialId: `${runId}/0.1/0-2`, attempt: 1, runId, groupId: `${runId}/0.1/0`, trialIndex: 2 });
  await end(`${runId}/0.1/0`, 'scored', 'scored');
  expect(names((await plan(0)).open)).toEqual(['0.1/1']);
  await end(`${runId}/0.1/1`, 'scored', 'scored', 'scored');
  expect(names((await plan(0)).open)).toEqual(['0.1/2']);
});

test('over-sampled trials and stragglers that will be cut count towards `max_concurrent_trials`', async () => {
  await begin({
    group_size: 8,
    groups_per_iteration: 16,
    group_quorum: 4,
    stragglers: 'cancel',
    max_concurrent_trials: 64,
  });
  expect((await plan(0)).open).toHaveLength(8);
  anotherRun();
  await begin({ group_size: 2, over_sampling: 2, groups_per_iteration: 8, max_concurrent_trials: 8 });
  expect((await plan(0)).open).toHaveLength(2);
});

test('a train step does not wait for running trials when slots would be idle meanwhile', async () => {
  await begin({
    max_staleness: 1,
    group_size: 2,
    stragglers: 'carry_over',
    groups_per_iteration: 1,
    max_concurrent_trials: 4,
    max_stale_stragglers: 0,
  });
  await plan(0);
  await sample(`${runId}/0.1/0`, 0);
  await end(`${runId}/0.1/1`, 'scored', 'scored');
  await step(0);
  await plan(1);
  expect(await plan(1)).toMatchObject({ eligible: 0, isReady: false });
  await end(`${runId}/1.1/0`, 'scored', 'scored');
  // Two running trials can be used only by this step, and two places are idle because no more groups may start.
  expect(await plan(1)).toMatchObject({ eligible: 2, isReady: true });
});
