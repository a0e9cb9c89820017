import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { groups, iterations, runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import type { RunStatus } from '../run/query-status.ts';
import { show } from './show.ts';

const store = useDatabase();
const report: RunStatus = {
  run: 'run',
  phase: 'rollout',
  iteration: 1,
  iterations: 3,
  take: 2,
  policy_version: 1,
  groups_ended: 0,
  groups_total: 1,
  trials: {},
  waits_for: '4 trials for the batch: 1 are there, 1 groups run',
  until: '2026-01-01T01:00:00.000Z',
  groups: [],
  reason: null,
  step: null,
};

test('`show` says what a run waits for and lists its open groups, also those with stragglers; without Temporal it only lists the groups', async () => {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 3, group_size: 4 });
  await store.db.insert(runs).values({ id: 'run', config });
  await store.db.insert(iterations).values([
    { runId: 'run', iteration: 1, take: 1, status: 'superseded', policyVersion: 1 },
    { runId: 'run', iteration: 1, take: 2, policyVersion: 1 },
  ]);
  const openedAt = new Date('2026-01-01T00:00:00Z');
  const deadlineAt = new Date('2026-01-01T00:30:00Z');
  const group = { runId: 'run', task: '/tasks/add', agent: 'a', size: 4, policyVersion: 1, openedAt };
  await store.db.insert(groups).values([
    { ...group, id: 'run/1.1/0', kind: 'train', iteration: 1, take: 1, ordinal: 0 },
    { ...group, id: 'run/1.2/0', kind: 'train', iteration: 1, take: 2, ordinal: 0, deadlineAt },
    {
      ...group,
      id: 'run/1.2/1',
      kind: 'train',
      iteration: 1,
      take: 2,
      ordinal: 1,
      endedAt: new Date(),
      dropped: 'no_spread',
    },
    { ...group, id: 'run/1.2/2', kind: 'train', iteration: 1, take: 2, ordinal: 2, endedAt: new Date() },
    { ...group, id: 'run/eval@1/0', kind: 'eval', ordinal: 0 },
  ]);
  for (const [trialIndex, outcome] of [
    [0, 'scored'],
    [1, 'infra_error'],
    [2, null],
  ] as const) {
    const trialId = `run-1.2-0-${trialIndex}`;
    await openAttempt(store.db, { trialId, attempt: 1, runId: 'run', groupId: 'run/1.2/0', trialIndex });
    if (outcome)
      await sealAttempt(store.db, { trialId, outcome, rewards: outcome === 'scored' ? { reward: 1 } : undefined });
  }
  await openAttempt(store.db, { trialId: 'straggler', attempt: 1, runId: 'run', groupId: 'run/1.2/2', trialIndex: 0 });
  const underWay = [
    {
      id: 'run/1.2/0',
      task: '/tasks/add',
      trials: { waiting: 2, running: 1, ended: 1 },
      since: openedAt.toISOString(),
      until: deadlineAt.toISOString(),
    },
    {
      id: 'run/1.2/2',
      task: '/tasks/add',
      trials: { waiting: 3, running: 1, ended: 0 },
      since: openedAt.toISOString(),
      until: null,
    },
    {
      id: 'run/eval@1/0',
      task: '/tasks/add',
      trials: { waiting: 4, running: 0, ended: 0 },
      since: openedAt.toISOString(),
      until: null,
    },
  ];
  const { phase, waits_for, until } = report;
  expect(JSON.parse(await show(store.db, 'run', true, async () => report))).toMatchObject({
    run: 'run',
    iterations: [{}, { groups: 3, dropped: { no_spread: 1 } }],
    under_way: { phase, waits_for, until, groups: underWay },
  });
  expect(JSON.parse(await show(store.db, 'run', true, async () => null))).toMatchObject({
    under_way: { phase: null, waits_for: null, until: null, groups: underWay },
  });
  const printed = await show(store.db, 'run', false, async () => report);
  expect(printed).toContain(`rollout, waits for ${waits_for}, at the latest until ${until}`);
  expect(printed).toMatch(/^1\.2\/0 +add +2 waiting, 1 running, 1 ended +2026-01-01T00:30:00\.000Z$/m);
  await store.db.update(runs).set({ status: 'completed' });
  expect(JSON.parse(await show(store.db, 'run', true, async () => report))).toMatchObject({ under_way: null });
});
