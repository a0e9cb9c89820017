import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { countAttempts } from '../../store/queries/count-attempts.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { association } from './association.ts';
import { readInfraErrors, readInfraWarnings, warnOfRetried, warnOfTrend } from './infra-errors.ts';
import { show } from './show.ts';

const store = useDatabase();

const once = (marked: 0 | 1, ...scores: number[]) => scores.map((score) => ({ score, marked, of: 1 }));

test('the measure of association is high for marks on high scores, low for marks on low scores, and 0 for marks on all or none', () => {
  expect(association([[...once(1, 1, 1, 1, 1), ...once(0, 0, 0, 0, 0)]])).toBeCloseTo(Math.sqrt(7), 10);
  expect(association([[...once(0, 1, 1, 1, 1), ...once(1, 0, 0, 0, 0)]])).toBeCloseTo(-Math.sqrt(7), 10);
  expect([
    association([]),
    association([once(1, 0, 1)]),
    association([once(0, 0, 1)]),
    association([[...once(1, 1), ...once(0, 1)]]),
  ]).toEqual([0, 0, 0, 0]);
});

test('the measure of association of random marks is standard normal: above 3 in about one of 700 cases', () => {
  let draws = 0;
  const random = () => createHash('md5').update(`${draws++}`).digest().readUInt32LE() / 2 ** 32;
  const groups = () =>
    Array.from({ length: 8 }, () =>
      Array.from({ length: 8 }, () => ({ score: random() < 0.5 ? 1 : 0, marked: random() < 0.3 ? 1 : 0, of: 1 })),
    );
  const values = Array.from({ length: 1000 }, () => association(groups()));
  const mean = values.reduce((sum, z) => sum + z, 0) / values.length;
  expect([
    Math.abs(mean) < 0.1,
    values.filter((z) => z > 3).length <= 10,
    values.filter((z) => Math.abs(z) > 1.96).length > 25,
  ]).toEqual([true, true, true]);
});

test('`show` warns when infrastructure errors rise with the policy versions’ rewards, not when they fall or stay', () => {
  const rising = [0, 0.25, 0.5, 0.75].map((reward_mean, policy_version) => ({
    policy_version,
    reward_mean,
    ended: 64,
    infra_errors: 1 + 6 * policy_version,
  }));
  const mirrored = rising.map((row, i) => ({ ...row, infra_errors: rising[3 - i]?.infra_errors ?? 0 }));
  expect(warnOfTrend(rising)).toEqual([expect.stringContaining('rises with the reward')]);
  expect([warnOfTrend(mirrored), warnOfTrend(rising.map((row) => ({ ...row, infra_errors: 10 })))]).toEqual([[], []]);
});

test('`show` warns when trials that ran again score higher than the others of their groups, not when groups differ', () => {
  const group = (groupId: string, retried: number, reward: { retried: number; other: number }) =>
    Array.from({ length: 8 }, (_, i) => ({
      groupId,
      policyVersion: 0,
      wasRetried: i < retried,
      reward: i < retried ? reward.retried : reward.other,
    }));
  expect(
    warnOfRetried([...group('a', 4, { retried: 1, other: 0 }), ...group('b', 4, { retried: 1, other: 0 })]),
  ).toEqual([expect.stringContaining('8 trials were run again')]);
  expect(
    warnOfRetried([...group('easy', 7, { retried: 1, other: 1 }), ...group('hard', 1, { retried: 0, other: 0 })]),
  ).toEqual([]);
});

test('`show` counts a run’s infrastructure errors by task and policy version; `status` warns of them while the run is under way', async () => {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 3, group_size: 4 });
  await store.db.insert(runs).values([
    { id: 'run', config },
    { id: 'over', config, status: 'completed' },
  ]);
  for (const [runId, task, policyVersion] of [
    ['run', '/tasks/add', 0],
    ['run', '/tasks/square', 1],
    ['over', '/tasks/add', 0],
  ] as const) {
    for (let trialIndex = 0; trialIndex < 16; trialIndex++) {
      const trial = {
        trialId: `${runId}-${policyVersion}-${trialIndex}`,
        runId,
        groupId: `${runId}/${policyVersion}`,
        trialIndex,
        task,
        policyVersion,
      };
      await openAttempt(store.db, { ...trial, attempt: 1 });
      if (trialIndex % 2 === 1 && policyVersion === 0) {
        await sealAttempt(store.db, { trialId: trial.trialId, outcome: 'infra_error', evidence: 'engine' });
        await openAttempt(store.db, { ...trial, attempt: 2 });
      }
      await sealAttempt(store.db, { trialId: trial.trialId, outcome: 'scored', rewards: { reward: trialIndex % 2 } });
    }
  }
  expect(await readInfraErrors(store.db, 'run')).toMatchObject({
    ended: 40,
    infra_errors: 8,
    by_task: [{ task: '/tasks/add', ended: 24, infra_errors: 8 }],
    by_policy_version: [
      { policy_version: 0, ended: 24, infra_errors: 8, reward_mean: 0.5 },
      { policy_version: 1, ended: 16, infra_errors: 0, reward_mean: 0.5 },
    ],
    warnings: [expect.stringContaining('8 trials were run again')],
  });
  expect(await readInfraWarnings(store.db)).toEqual([expect.stringMatching(/^run run: 8 trials/)]);
  expect((await countAttempts(store.db)).map(({ runId }) => runId)).toEqual(['run', 'run']);
  const printed = await show(store.db, 'run', false, async () => null);
  expect(printed).toContain(
    'infrastructure errors: 8 of 40 attempts; by task: add 8 of 24; by policy version: 0 8 of 24',
  );
  expect(printed).toContain('WARNING: 8 trials were run again');
  expect(JSON.parse(await show(store.db, 'run', true, async () => null))).toMatchObject({
    infra_errors: { infra_errors: 8 },
  });
});
